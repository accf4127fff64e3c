#include "vgpu/collectives.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace peakline::vgpu {
namespace {

// c10d has a kernel per device that looks up the group's backend for it: CUDA's is the one.
void as_on_cuda(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CUDA), stack);
}

}  // namespace

void add_collectives(torch::Library& c10d) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("c10d::", 0) != 0) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) continue;
    std::string own = name.name.substr(6);
    if (!name.overload_name.empty()) own += "." + name.overload_name;
    c10d.impl(own.c_str(), torch::CppFunction::makeFromBoxedFunction<&as_on_cuda>());
  }
}

}  // namespace peakline::vgpu
