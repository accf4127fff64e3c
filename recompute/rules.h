// Which results of which ops are kept, in all calls of some modules: a plan's words, by operator.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace peakline::recompute {

// Calls of one op, in the order of a module's forward.
struct Calls {
  bool all = false;
  std::unordered_set<std::int64_t> numbers;

  [[nodiscard]] bool contains(std::int64_t number) const { return all || numbers.contains(number); }
};

// What happens to one op.
struct Rule {
  const Calls* keep = nullptr;  // none is kept
  bool random = false;          // it may draw random numbers
  int dropout = -1;             // the argument whose zero says that it draws none
  int returns = 0;
  bool view = false;  // its result lies in an argument

  // Every call is recomputed, and none draws.
  [[nodiscard]] bool plain() const { return keep == nullptr && !random; }
};

// As a plan writes it: "aten.mm.default".
std::string name_of(const c10::OperatorHandle& op);

class Rules {
 public:
  // Ops of `never` are left alone whatever their tags.
  Rules(std::unordered_map<std::string, Calls> keep, std::unordered_set<std::string> never)
      : keep_(std::move(keep)), never_(std::move(never)) {}

  // Thread-safe; the rule lives as long as this.
  const Rule& of(const c10::OperatorHandle& op);

 private:
  [[nodiscard]] Rule make(const c10::OperatorHandle& op) const;

  std::unordered_map<std::string, Calls> keep_;
  std::unordered_set<std::string> never_;
  std::mutex mutex_;
  std::unordered_map<c10::OperatorHandle, std::unique_ptr<Rule>> known_;
};

}  // namespace peakline::recompute
