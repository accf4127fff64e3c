// The one kernel that stands for almost every op on the virtual GPU.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "vgpu/call.h"

namespace peakline::vgpu {

// One instance per op. Thread-safe.
class VirtualKernel final : public c10::OperatorKernel {
 public:
  explicit VirtualKernel(OpInfo info) : info_(std::move(info)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  OpInfo info_;
};

// The same for ops that nobody has made a kernel for (other libraries' ops).
void run_unknown_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack);

}  // namespace peakline::vgpu
