// What a step of the run is: one of the optimizer that is seen first, or, where no optimizer steps, a
// backward after which the parameters were changed.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace peakline {

// Not thread-safe, except done().
class StepCounter {
 public:
  [[nodiscard]] std::uint64_t done() const noexcept { return done_.load(); }

  // Whether an outermost step of `optimizer` is one of the run.
  bool optimizer_stepped(const void* optimizer);
  void count() { ++done_; }

  // Parameters whose changes tell a step where there is no optimizer.
  void sample(const at::Tensor& parameter);
  // Whether a step was made since the last backward, as far as the sample tells.
  bool changed_since_backward();
  void backward_ended();

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Seen {
    WeakTensor tensor;
    std::uint32_t version = 0;
    const void* gradient = nullptr;
    std::uint32_t gradient_version = 0;
  };
  static void look(const at::Tensor& parameter, Seen& seen);

  std::atomic<std::uint64_t> done_{0};
  const void* first_ = nullptr;
  std::unordered_map<const void*, int> others_;  // steps since the first's last
  std::vector<Seen> sample_;
  bool after_backward_ = false;
};

}  // namespace peakline
