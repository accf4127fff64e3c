// Selective checkpointing below autograd: what one call of a module keeps in its forward, and does not
// compute again in its recomputation.
//
// torch's own contexts are modes of Python, which take the host some twenty microseconds for each op. A
// step of short ops is as long as what the host does.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "recompute/kept.h"
#include "recompute/rules.h"

namespace peakline::recompute {

// Whether this torch leaves us the dispatch key that the contexts need. Asks once.
bool available();

// What a forward has kept: by op, and by the number of its call.
using Results = std::unordered_map<c10::OperatorHandle, std::unordered_map<std::int64_t, Kept>>;

using Run = c10::function_ref<void()>;

// Watches the ops of its thread from enter() to leave(). Contexts nest.
class Context {
 public:
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  virtual ~Context() = default;

  virtual void enter();
  void leave();

  // Runs the op, or puts its results in the place of its arguments; `run` is what does it otherwise.
  virtual void op(const c10::OperatorHandle& op, torch::jit::Stack& stack, Run run) = 0;
};

class Forward : public Context {
 public:
  Forward(std::shared_ptr<Rules> rules, std::shared_ptr<Results> results)
      : rules_(std::move(rules)), results_(std::move(results)) {}

  void op(const c10::OperatorHandle& op, torch::jit::Stack& stack, Run run) override;

 private:
  void check_random(const std::string& name, bool kept);

  std::shared_ptr<Rules> rules_;
  std::shared_ptr<Results> results_;
  std::unordered_map<const Rule*, std::int64_t> called_;
  std::string random_kept_, random_recomputed_;  // an op each
};

class Recomputation : public Context {
 public:
  explicit Recomputation(std::shared_ptr<Results> results) : results_(std::move(results)) {}

  void enter() override;
  void op(const c10::OperatorHandle& op, torch::jit::Stack& stack, Run run) override;

  // What is still there, for whoever recomputes in another way. Raises as `op` does.
  struct Left {
    std::string op;
    std::int64_t number;
    std::vector<c10::IValue> values;
  };
  std::vector<Left> take();

 private:
  std::shared_ptr<Results> results_;
  std::unordered_map<c10::OperatorHandle, std::int64_t> called_;
};

}  // namespace peakline::recompute
