#include "capture/labels.h"

#include <utility>

#include "capture/alloc_gate.h"
#include "capture/host_allocator.h"
#include "capture/tensor_places.h"

namespace peakline::capture {
namespace {

// A parameter whose module had not been met when an optimizer stepped: where forward runs inside the
// step, the optimizer is seen first.
bool lacks_module(CategoryId category, ModuleId module) {
  return category == category::kParameter && module == ModuleId{};
}

}  // namespace

void Labels::add(const at::Tensor& tensor, CategoryId category, ModuleId module, NameId name) {
  const auto [slot, added] = index_.try_emplace(tensor.unsafeGetTensorImpl(), known_.size());
  Known known{WeakTensor(tensor.getIntrusivePtr()), {category, module, name}};
  if (added) {
    known_.push_back(std::move(known));
  } else if (const Known& before = known_[slot->second];
             before.tensor.expired() ||
             lacks_module(before.meaning.category, before.meaning.module)) {
    known_[slot->second] = std::move(known);  // the first is the address of a tensor that is gone
  } else {
    return;
  }
  added_.push_back(slot->second);
}

void Labels::label_added() {
  for (const std::size_t at : std::exchange(added_, {})) {
    const auto alive = known_[at].tensor.lock();
    if (alive.defined()) label(at::Tensor(alive), Meaning(known_[at].meaning));
  }
}

const Labels::Meaning* Labels::find(const at::Tensor& tensor) const {
  const auto found = index_.find(tensor.unsafeGetTensorImpl());
  if (found == index_.end() || known_[found->second].tensor.expired()) return nullptr;
  return &known_[found->second].meaning;
}

bool Labels::knows(const at::Tensor& tensor) const { return find(tensor) != nullptr; }

void Labels::label(const at::Tensor& tensor, const Meaning& what) {
  const bool all = for_each_storage(tensor, [&](c10::StorageImpl& storage) {
    const Place place = place_of(storage, devices_);
    if (place.address != 0)
      recorder_.label(place.device, place.address, what.category, what.module, what.name);
  });
  if (!all) recorder_.lost(Loss::kOpaqueTensor);
}

// Calls `f(known, tensor)` for every known tensor that is still alive. What a tensor subclass runs
// meanwhile may make more of them known.
template <class F>
void Labels::for_each_known(F&& f) {
  for (std::size_t i = 0; i < known_.size(); ++i) {
    c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> alive = known_[i].tensor.lock();
    if (alive.defined()) f(known_[i].meaning, at::Tensor(std::move(alive)));
  }
}

// False: steps repeat, so the labels are those of the step before. The baseline is no part of a step.
bool Labels::begin_walk() {
  if (current_recorder() != &recorder_) return true;
  recorder_.push({.kind = RawKind::kLabelWalk});
  return !AllocGate::repeating();
}

void Labels::label_alive_in_step() {
  if (begin_walk()) label_alive();
}

void Labels::label_alive() {
  for_each_known([this](Meaning what, const at::Tensor& tensor) {
    label(tensor, what);
    if (what.category != category::kParameter) return;
    label(tensor.grad(), {category::kGradient, what.module, what.name});
  });
}

void Labels::label_state(const std::function<std::vector<StateTensor>()>& state) {
  if (!begin_walk()) return;
  for (const StateTensor& kept : state()) {
    const Meaning* owner = kept.parameter.defined() ? find(kept.parameter) : nullptr;
    label(kept.tensor, {category::kOptstate, owner == nullptr ? ModuleId{} : owner->module,
                        owner == nullptr ? NameId{} : owner->name});
  }
}

void Labels::label_inputs(std::span<const at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors) label(tensor, {category::kInput, {}, {}});
}

void Labels::label_owner(const at::Tensor& tensor, ModuleId module, NameId name) {
  label(tensor, {category::kUnlabelled, module, name});
}

void Labels::adopt(const at::Tensor& tensor) {
  for_each_storage(tensor, [this](c10::StorageImpl& storage) {
    if (!storage.device().is_cpu() || storage.nbytes() == 0) return;
    HostAllocatorObserver::watch_free(storage);
    const Place place = place_of(storage, devices_);
    recorder_.push({.address = place.address,
                    .size = place.bytes,
                    .extra = place.bytes,
                    .kind = RawKind::kAdopt,
                    .device = place.device.raw()});
  });
}

void Labels::adopt_all() {
  for_each_known([this](Meaning what, const at::Tensor& tensor) {
    adopt(tensor);
    if (what.category == category::kParameter) adopt(tensor.grad());
  });
}

void Labels::adopt_state(std::span<const StateTensor> state) {
  for (const StateTensor& kept : state) adopt(kept.tensor);
}

}  // namespace peakline::capture
