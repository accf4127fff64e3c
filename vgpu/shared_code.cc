#include "vgpu/shared_code.h"

namespace peakline::vgpu {

void refuse_own_code(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "peakline's virtual GPU cannot run ", op.schema().name(),
                              " of sparse or nested tensors: what CUDA's own code for it allocates "
                              "is not modelled");
}

void refuse_without_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op.schema().name(),
      " has no kernel for sparse or nested tensors on cuda: a real GPU would "
      "refuse it as this virtual GPU does");
}

bool is_op(const std::string& name) {
  const std::size_t dot = name.find('.');
  const bool plain = dot == std::string::npos;
  const c10::OperatorName op{"aten::" + name.substr(0, dot), plain ? "" : name.substr(dot + 1)};
  return c10::Dispatcher::singleton().findSchema(op).has_value();
}

}  // namespace peakline::vgpu
