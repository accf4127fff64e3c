#include "vgpu/collectives.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

#include "capture/recorder.h"

namespace peakline::vgpu {
namespace {

// Of all tensors in a value: a tensor, or lists of them.
std::uint64_t bytes_of(const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() ? static_cast<std::uint64_t>(tensor.nbytes()) : 0;
  }
  std::uint64_t bytes = 0;
  if (!value.isList()) return bytes;
  for (const c10::IValue& item : value.toListRef()) bytes += bytes_of(item);
  return bytes;
}

// What a collective moves is its largest argument: what is gathered, scattered or reduced.
void record(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  capture::Recorder* recorder = capture::current_recorder();
  if (recorder == nullptr) return;
  std::uint64_t bytes = 0;
  const std::size_t arguments = op.schema().arguments().size();
  for (std::size_t i = stack.size() - arguments; i < stack.size(); ++i) {
    bytes = std::max(bytes, bytes_of(stack[i]));
  }
  recorder->push({.size = bytes,
                  .id = recorder->words().name(op.schema().name()).raw(),
                  .kind = capture::RawKind::kCollective});
}

// c10d has a kernel per device that looks up the group's backend for it: CUDA's is the one.
void as_on_cuda(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  record(op, *stack);
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
