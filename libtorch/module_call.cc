#include "peakline/torch/module_call.h"

#include <exception>
#include <new>
#include <vector>

#include "capture/module_scope.h"
#include "libtorch/run.h"

namespace peakline {
namespace {

using capture::ModuleScope;

thread_local bool t_stepping = false;  // an optimizer steps on this thread

}  // namespace

bool torch_detail::outside_modules() noexcept {
  const capture::Recorder* recorder = capture::current_recorder();
  return recorder != nullptr && capture::outside_modules(*recorder);
}

void torch_detail::note_inputs(const std::vector<at::Tensor>& inputs) noexcept {
  if (const auto run = TorchRun::current()) run->note_inputs(inputs);
}

void ModuleCall::enter(const torch::nn::Module& module) noexcept {
  static_assert(sizeof(ModuleScope) <= sizeof(scope_) && alignof(ModuleScope) <= 8);
  capture::Recorder* recorder = capture::current_recorder();
  const auto run = recorder == nullptr ? nullptr : TorchRun::current();
  if (!run) return;
  const ModuleId id = run->identify(module);
  // Noted already, by its holder for one.
  if (id == ModuleId{} || id == capture::running_module(*recorder)) return;
  new (scope_) ModuleScope(*recorder, id);
  entered_ = true;
}

void ModuleCall::leave() noexcept {
  std::launder(reinterpret_cast<ModuleScope*>(scope_))->~ModuleScope();
}

void OptimizerStep::begin(const torch::optim::Optimizer& optimizer) noexcept {
  if (t_stepping) return;  // a part of that step
  const auto run = TorchRun::current();
  if (!run) return;
  run->step_begins(optimizer);
  t_stepping = true;
  optimizer_ = &optimizer;
  exceptions_ = std::uncaught_exceptions();
}

void OptimizerStep::end() noexcept {
  t_stepping = false;
  const bool completed = std::uncaught_exceptions() == exceptions_;
  if (const auto run = TorchRun::current()) run->step_ended(*optimizer_, completed);
}

}  // namespace peakline
