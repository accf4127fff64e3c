// One op on values, remembered: what it was called with, and where its results go.
#pragma once

#include <memory>
#include <vector>

#include "vgpu/call.h"
#include "vgpu/shape_cache.h"
#include "vgpu/values/value.h"
#include "vgpu/values/value_rules.h"

namespace peakline::vgpu {

// A storage that the op reads or writes.
struct Source {
  ValuePtr value;  // before the op; null: unknown, or not read
  std::uint64_t bytes = 0;
  bool read = false;
  int slot = -1;  // the result that is this storage afterwards; -1: it stays as it is
};

// A tensor argument.
struct Operand {
  int source = -1;  // number of its Source; -1: a host tensor, or not there
  at::Tensor host;  // as it was at the call
  Layout layout;
  std::uint8_t argument = 0;
  bool wrapped_number = false;
  bool conjugated = false;  // by a bit of the tensor, which its bytes do not show
  bool negated = false;
  bool only_written = false;  // an out= argument
  bool covers = false;        // it is all of its storage
};

// Where one tensor of the results lies in its storage.
struct Part {
  int result = -1;   // return value of that number
  int item = -1;     // thereof the tensor of that number, where it is a list
  int operand = -1;  // or this argument, written to
  Layout layout;
};

// A storage that the op makes or writes.
struct Slot {
  std::uint64_t bytes = 0;
  c10::ScalarType dtype = c10::kByte;
  int source = -1;  // a written storage; -1: a new one
  std::vector<Part> parts;
};

// Holds no tensor of the program: what it was called with may be freed. Not thread-safe; Value is.
class Computation final {
 public:
  // `results` are the op's tensors as they are after the call, `outputs` what they are.
  Computation(const Call& call, c10::ArrayRef<Output> outputs,
              c10::ArrayRef<std::uint64_t> fresh_bytes, const ValueRule* rule, bool exact);

  // Runs the op with the first question.
  const Known& result(int slot);

  [[nodiscard]] const std::vector<Slot>& slots() const noexcept { return slots_; }
  [[nodiscard]] std::uint32_t depth() const noexcept { return depth_; }
  [[nodiscard]] std::uint64_t held() const noexcept { return held_; }
  [[nodiscard]] bool assumed() const noexcept { return assumed_; }
  [[nodiscard]] bool moves_picks() const noexcept { return moves_picks_; }

  // For those who evaluate it.
  [[nodiscard]] const OpInfo& info() const noexcept { return info_; }
  [[nodiscard]] const ValueRule* rule() const noexcept { return rule_; }
  [[nodiscard]] const std::vector<Source>& sources() const noexcept { return sources_; }
  [[nodiscard]] const std::vector<Operand>& operands() const noexcept { return operands_; }
  [[nodiscard]] c10::ArrayRef<c10::IValue> args() const noexcept { return args_; }
  // Calls the op with `stand_ins` in place of its tensors; `in_own_type`: with its dtype= argument.
  [[nodiscard]] torch::jit::Stack call(c10::ArrayRef<at::Tensor> stand_ins,
                                       bool in_own_type = true) const;

 private:
  void add_operand(const Call& call, std::size_t number);
  int source_of(const at::Tensor& tensor);
  void add_part(const Output& output, int result, int item);
  void add_written();
  void measure();

  c10::OperatorHandle op_;
  const OpInfo& info_;
  const ValueRule* rule_;
  bool exact_;
  bool assumed_ = false;
  bool moves_picks_ = false;
  bool done_ = false;
  std::uint32_t depth_ = 1;
  std::uint64_t held_ = 0;
  torch::jit::Stack args_;                         // without tensors
  std::vector<const c10::StorageImpl*> storages_;  // of the sources, while they are collected
  std::vector<Source> sources_;
  std::vector<Operand> operands_;
  std::vector<Slot> slots_;
  std::vector<Known> results_;
};

// All operands are known exactly. Empty where the host cannot compute it.
std::vector<Known> compute_exactly(const Computation& computation);
// Some are not.
std::vector<Known> compute_bounds(const Computation& computation);

}  // namespace peakline::vgpu
