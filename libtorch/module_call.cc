#include "peakline/torch/module_call.h"

#include <exception>
#include <new>
#include <vector>

#include "capture/module_scope.h"
#include "libtorch/run.h"

namespace peakline {
namespace {

using capture::ModuleScope;

// The optimizers that step on this thread, one inside the other.
std::vector<const torch::optim::Optimizer*>& stepping() {
  thread_local std::vector<const torch::optim::Optimizer*> optimizers;
  return optimizers;
}

}  // namespace

bool torch_detail::outside_modules() noexcept {
  const capture::Recorder* recorder = capture::current_recorder();
  return recorder != nullptr && capture::outside_modules(*recorder);
}

// What we do beside the program's call must never disturb it.
void torch_detail::note_inputs(const std::vector<at::Tensor>& inputs) noexcept {
  try {
    if (const auto run = TorchRun::current()) run->note_inputs(inputs);
  } catch (...) {
  }
}

void ModuleCall::enter(const torch::nn::Module& module) noexcept {
  static_assert(sizeof(ModuleScope) <= sizeof(scope_) && alignof(ModuleScope) <= 8);
  try {
    capture::Recorder* recorder = capture::current_recorder();
    const auto run = recorder == nullptr ? nullptr : TorchRun::current();
    if (!run) return;
    const ModuleId id = run->identify(module);
    // Noted already, by its holder for one.
    if (id == ModuleId{} || id == capture::running_module(*recorder)) return;
    new (scope_) ModuleScope(*recorder, id);
    entered_ = true;
  } catch (...) {
  }
}

void ModuleCall::leave() noexcept {
  std::launder(reinterpret_cast<ModuleScope*>(scope_))->~ModuleScope();
}

void OptimizerStep::begin(const torch::optim::Optimizer& optimizer) noexcept {
  if (!stepping().empty()) return;  // a part of that step
  try {
    const auto run = TorchRun::current();
    if (!run) return;
    run->step_begins(optimizer);
    stepping().push_back(&optimizer);
    optimizer_ = &optimizer;
    exceptions_ = std::uncaught_exceptions();
  } catch (...) {
  }
}

void OptimizerStep::end() noexcept {
  stepping().pop_back();
  try {
    const bool completed = std::uncaught_exceptions() == exceptions_;
    if (const auto run = TorchRun::current()) run->step_ended(*optimizer_, completed);
  } catch (...) {
  }
}

}  // namespace peakline
