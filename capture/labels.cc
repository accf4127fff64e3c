#include "capture/labels.h"

#include <torch/csrc/autograd/python_variable.h>

#include <utility>

#include "capture/host_allocator.h"
#include "capture/op_observer.h"
#include "capture/tensor_places.h"

namespace peakline::capture {

void Labels::add(const at::Tensor& tensor, CategoryId category, ModuleId module, NameId name) {
  const auto [slot, added] = index_.try_emplace(tensor.unsafeGetTensorImpl(), known_.size());
  Known known{WeakTensor(tensor.getIntrusivePtr()), category, module, name};
  if (added) {
    known_.push_back(std::move(known));
  } else if (known_[slot->second].tensor.expired()) {
    known_[slot->second] = std::move(known);  // the address of a tensor that is gone
  } else {
    return;
  }
  added_.push_back(slot->second);
}

void Labels::label_added() {
  for (const std::size_t at : std::exchange(added_, {})) {
    const Known& known = known_[at];
    const auto alive = known.tensor.lock();
    if (alive.defined()) label(at::Tensor(alive), known.category, known.module, known.name);
  }
}

const Labels::Known* Labels::find(const at::Tensor& tensor) const {
  const auto found = index_.find(tensor.unsafeGetTensorImpl());
  if (found == index_.end() || known_[found->second].tensor.expired()) return nullptr;
  return &known_[found->second];
}

bool Labels::knows(const at::Tensor& tensor) const { return find(tensor) != nullptr; }

void Labels::label(const at::Tensor& tensor, CategoryId category, ModuleId module, NameId name) {
  for_each_storage(tensor, [&](c10::StorageImpl& storage) {
    const Place place = place_of(storage, devices_);
    if (place.address != 0) recorder_.label(place.device, place.address, category, module, name);
  });
}

// Calls `f(known, tensor)` for every known tensor that is still alive.
template <class F>
void Labels::for_each_known(F&& f) {
  for (const Known& known : known_) {
    c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> alive = known.tensor.lock();
    if (alive.defined()) f(known, at::Tensor(std::move(alive)));
  }
}

// False: steps repeat, so the labels are those of the step before. The baseline is no part of a step.
bool Labels::begin_walk() {
  if (current_recorder() != &recorder_) return true;
  recorder_.push({.kind = RawKind::kLabelWalk});
  return !OpObserver::repeating();
}

void Labels::label_alive_in_step() {
  if (begin_walk()) label_alive();
}

void Labels::label_alive() {
  for_each_known([this](const Known& known, const at::Tensor& tensor) {
    label(tensor, known.category, known.module, known.name);
    if (known.category != category::kParameter) return;
    label(tensor.grad(), category::kGradient, known.module, known.name);
  });
}

// Calls `f(parameter or null, tensor)` for every tensor in an optimizer's state.
template <class F>
void Labels::for_each_state(PyObject* state, F&& f) {
  if (!PyDict_Check(state)) return;
  Py_ssize_t position = 0;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  while (PyDict_Next(state, &position, &key, &value) != 0) {
    const at::Tensor* parameter = THPVariable_Check(key) ? &THPVariable_Unpack(key) : nullptr;
    for_each_tensor(value, [&](const at::Tensor& tensor) { f(parameter, tensor); });
  }
}

void Labels::label_state(PyObject* state) {
  if (!begin_walk()) return;
  for_each_state(state, [this](const at::Tensor* parameter, const at::Tensor& tensor) {
    const Known* owner = parameter == nullptr ? nullptr : find(*parameter);
    label(tensor, category::kOptstate, owner == nullptr ? ModuleId{} : owner->module,
          owner == nullptr ? NameId{} : owner->name);
  });
}

void Labels::label_inputs(PyObject* args, PyObject* kwargs) {
  const auto found = [this](const at::Tensor& tensor) {
    label(tensor, category::kInput, ModuleId{}, NameId{});
  };
  for_each_tensor(args, found);
  for_each_tensor(kwargs, found);
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
  for_each_known([this](const Known& known, const at::Tensor& tensor) {
    adopt(tensor);
    if (known.category == category::kParameter) adopt(tensor.grad());
  });
}

void Labels::adopt_state(PyObject* state) {
  for_each_state(state, [this](const at::Tensor*, const at::Tensor& tensor) { adopt(tensor); });
}

}  // namespace peakline::capture
