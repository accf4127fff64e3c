#include "libtorch/step_counter.h"

namespace peakline {
namespace {

constexpr int kForsaken = 16;  // steps of another, after which the first is taken to be done with
constexpr std::size_t kSampled = 8;

}  // namespace

bool StepCounter::optimizer_stepped(const void* optimizer) {
  if (first_ == nullptr) first_ = optimizer;
  if (first_ != optimizer && ++others_[optimizer] > kForsaken) first_ = optimizer;
  if (first_ != optimizer) return false;
  others_.clear();
  return true;
}

void StepCounter::sample(const at::Tensor& parameter) {
  if (sample_.size() < kSampled && parameter.requires_grad()) {
    sample_.push_back({.tensor = WeakTensor(parameter.getIntrusivePtr())});
  }
}

void StepCounter::look(const at::Tensor& parameter, Seen& seen) {
  seen.version = parameter.unsafeGetTensorImpl()->version_counter().current_version();
  const at::Tensor& gradient = parameter.grad();
  seen.gradient = gradient.defined() ? gradient.unsafeGetTensorImpl() : nullptr;
  seen.gradient_version =
      gradient.defined() ? gradient.unsafeGetTensorImpl()->version_counter().current_version() : 0;
}

// Whatever updates a model changes its parameters or clears their gradients between two backwards;
// gradient accumulation does neither.
bool StepCounter::changed_since_backward() {
  if (!after_backward_ || first_ != nullptr) return false;
  for (const Seen& before : sample_) {
    const auto alive = before.tensor.lock();
    if (!alive.defined()) continue;
    Seen now{.tensor = before.tensor};
    look(at::Tensor(alive), now);
    if (now.version != before.version || now.gradient != before.gradient ||
        now.gradient_version != before.gradient_version) {
      return true;
    }
  }
  return false;
}

void StepCounter::backward_ended() {
  if (first_ != nullptr) return;
  for (Seen& seen : sample_) {
    if (const auto alive = seen.tensor.lock(); alive.defined()) look(at::Tensor(alive), seen);
  }
  after_backward_ = true;
}

}  // namespace peakline
