#include "vgpu/collectives.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "capture/recorder.h"
#include "vgpu/engine.h"

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

// What the arguments of a collective say of it.
struct Collective {
  std::uint64_t bytes = 0;  // its largest argument: what is gathered, scattered or reduced
  int ranks = 1;
  int device = 0;
  bool async = false;
};

int device_of(const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() && tensor.is_cuda() ? static_cast<int>(tensor.device().index()) : -1;
  }
  if (!value.isList()) return -1;
  for (const c10::IValue& item : value.toListRef()) {
    if (const int device = device_of(item); device >= 0) return device;
  }
  return -1;
}

Collective collective_of(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  Collective found;
  const auto& arguments = op.schema().arguments();
  const std::size_t first = stack.size() - arguments.size();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = stack[first + i];
    found.bytes = std::max(found.bytes, bytes_of(value));
    found.device = std::max(found.device, device_of(value));
    if (value.isBool() && arguments[i].name() == "asyncOp") found.async = value.toBool();
    if (value.isObject() && value.isCustomClass() &&
        arguments[i].type()->str().find("ProcessGroup") != std::string::npos) {
      found.ranks = value.toCustomClass<c10d::ProcessGroup>()->getSize();
    }
  }
  return found;
}

void record(const c10::OperatorHandle& op, std::uint64_t bytes) {
  capture::Recorder* recorder = capture::current_recorder();
  if (recorder == nullptr) return;
  recorder->push({.size = bytes,
                  .id = recorder->words().name(op.schema().name()).raw(),
                  .kind = capture::RawKind::kCollective});
}

// c10d has a kernel per device that looks up the group's backend for it: CUDA's is the one.
void as_on_cuda(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const Collective found = collective_of(op, *stack);
  record(op, found.bytes);
  if (Engine* engine = current_engine()) {
    engine->clock().collective(found.device, collective_kind(op.schema().name()),
                               static_cast<double>(found.bytes), found.ranks, found.async);
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CUDA), stack);
}

// The functional API's wait: the stream goes on when the collective is done.
void wait_as_on_cuda(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  if (Engine* engine = current_engine()) engine->clock().join(ThisThread::device());
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

void add_waits(torch::Library& functional) {
  if (!c10::Dispatcher::singleton().findSchema({"_c10d_functional::wait_tensor", ""})) return;
  functional.impl("wait_tensor", torch::CppFunction::makeFromBoxedFunction<&wait_as_on_cuda>());
}

}  // namespace peakline::vgpu
