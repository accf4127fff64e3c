// Says what blocks are: parameters, gradients, optimizer state, inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include <peakline/category.h>
#include <peakline/ids.h>

#include "capture/devices.h"
#include "capture/recorder.h"

namespace peakline::capture {

// What an optimizer keeps for one of its parameters (undefined when it does not say for which).
struct StateTensor {
  at::Tensor parameter;
  at::Tensor tensor;
};

// Remembers parameters and buffers weakly, and labels them and what belongs to them whenever asked.
// A label holds for a block's whole life, so once a step is often enough. Not thread-safe: under the
// GIL where there is one.
class Labels {
 public:
  Labels(Recorder& recorder, Devices& devices) : recorder_(recorder), devices_(devices) {}

  // From now on label_alive() knows this parameter or buffer.
  void add(const at::Tensor& tensor, CategoryId category, ModuleId module, NameId name);
  [[nodiscard]] bool knows(const at::Tensor& tensor) const;
  // Labels what was added since the last call. A program that only calls its model never comes to
  // the places where the others are called, and may drop the model before its end.
  void label_added();
  // Labels every known parameter and buffer and its gradient, where they are now.
  void label_alive();
  // The same at a place that every step has: while steps repeat, this and label_state() leave it to
  // the tape (see StepTape).
  void label_alive_in_step();
  // Labels what an optimizer keeps, which is only asked for when it is needed.
  void label_state(const std::function<std::vector<StateTensor>()>& state);
  void label_inputs(std::span<const at::Tensor> tensors);
  // Whose this block is; what it is for, its life says.
  void label_owner(const at::Tensor& tensor, ModuleId module, NameId name);

  // Host memory that was alive before the recording: writes its allocation, and sees its free.
  // Other devices' allocators have told about theirs.
  void adopt(const at::Tensor& tensor);
  void adopt_all();
  void adopt_state(std::span<const StateTensor> state);

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Meaning {
    CategoryId category;
    ModuleId module;
    NameId name;
  };
  struct Known {
    WeakTensor tensor;
    Meaning meaning;
  };

  [[nodiscard]] bool begin_walk();
  void label(const at::Tensor& tensor, const Meaning& what);
  [[nodiscard]] const Meaning* find(const at::Tensor& tensor) const;
  template <class F>
  void for_each_known(F&& f);

  Recorder& recorder_;
  Devices& devices_;
  std::vector<Known> known_;
  std::vector<std::size_t> added_;  // in `known_`, not labelled yet
  std::unordered_map<const c10::TensorImpl*, std::size_t> index_;
};

}  // namespace peakline::capture
