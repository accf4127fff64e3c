#include "capture/module_scope.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

#include "capture/op_observer.h"

namespace peakline::capture {
namespace {

// The module that this thread is in; counts only in the recording that noted it.
struct Inside {
  std::uint64_t recording = 0;
  ModuleId module;
};
thread_local Inside t_inside;

RawEvent module_event(RawKind kind, ModuleId module, bool recompute) {
  return {.address = at::sequence_number::peek(),
          .extra = at::RecordFunction::currentThreadId(),
          .id = module.raw(),
          .kind = kind,
          .device = recompute ? std::uint8_t{1} : std::uint8_t{0}};
}

}  // namespace

ModuleId running_module(const Recorder& recorder) noexcept {
  return t_inside.recording == recorder.serial() ? t_inside.module : ModuleId{};
}

bool outside_modules(const Recorder& recorder) noexcept {
  return running_module(recorder) == ModuleId{} && node_depth() == 0;
}

ModuleScope::ModuleScope(Recorder& recorder, ModuleId module) noexcept
    : recorder_(recorder),
      module_(module),
      around_(running_module(recorder)),
      recompute_(node_depth() > 0) {
  t_inside = {recorder_.serial(), module_};
  recorder_.push(module_event(RawKind::kModuleEnter, module_, recompute_));
}

ModuleScope::~ModuleScope() {
  // The recording may have ended inside the call; then this goes nowhere.
  recorder_.push(module_event(RawKind::kModuleLeave, module_, recompute_));
  t_inside = {recorder_.serial(), around_};
}

}  // namespace peakline::capture
