#include "vgpu/collectives.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "vgpu/values.h"

namespace peakline::vgpu {
namespace {

void forget(const c10::IValue& value) {
  if (value.isTensor()) {
    if (is_virtual(value.toTensor())) forget_values(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) {
      if (item.isTensor() || item.isList()) forget(item);
    }
  }
}

// What an op only reads keeps its values: a fake group copies them to where they are gathered.
bool only_read(const c10::Argument& argument) { return argument.name().rfind("input", 0) == 0; }

// c10d has a kernel per device that looks up the group's backend for it: CUDA's is the one.
void as_on_cuda(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const std::size_t first = stack->size() - arguments.size();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!only_read(arguments[i])) forget((*stack)[first + i]);
  }
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
