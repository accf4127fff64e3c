// Results that stay in memory between a module's forward and its recomputation.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace peakline::recompute {

// A tensor without its graph, which would keep itself alive. Nobody may have changed it when it is used.
class KeptTensor {
 public:
  // `base`: what counts the changes of a view.
  KeptTensor(const at::Tensor& tensor, const at::Tensor& base);

  [[nodiscard]] const at::Tensor& unchanged(const std::string& op) const;

 private:
  at::Tensor tensor_;
  c10::VariableVersion counter_;
  std::uint32_t version_ = 0;
};

// All results of one call.
class Kept {
 public:
  // The last `count` values of the stack. `base` may be undefined.
  Kept(const torch::jit::Stack& stack, int count, const at::Tensor& base);

  // As they were. Raises where one was changed after it was made; `op` is the op's name.
  [[nodiscard]] std::vector<c10::IValue> values(const std::string& op) const;

 private:
  using Value = std::variant<c10::IValue, KeptTensor, std::vector<KeptTensor>>;
  std::vector<Value> values_;
};

}  // namespace peakline::recompute
