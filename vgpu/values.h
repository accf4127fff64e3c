// Values of small tensors, kept in host memory so that programs can read them.
#pragma once

#include <optional>

#include "vgpu/call.h"
#include "vgpu/shape_cache.h"

namespace peakline::vgpu {

inline bool has_values(const at::Tensor& tensor) noexcept {
  const StorageRecord* record = record_of(tensor);
  return record != nullptr && record->values;
}

// `tensor`'s values as a host tensor that shares them with all other views of the same storage.
at::Tensor values_of(const at::Tensor& tensor);

// `tensor` is about to be written as a whole: true when its values can be kept, and then
// values_of() gives the place for them.
bool prepare_values(Engine& engine, const at::Tensor& tensor);

inline void forget_values(const at::Tensor& tensor) noexcept {
  if (StorageRecord* record = record_of(tensor); record != nullptr && record->values) {
    record->values = c10::Storage();
  }
}

// Values for a tensor that has just been made, or that was resized.
void give_values(Engine& engine, const at::Tensor& tensor, const at::Tensor& values);

// What an op gave when it was run on values.
struct ValueRun {
  torch::jit::Stack results;
  c10::SmallVector<at::Tensor, 16> stand_ins;
};

// True when everything that the op reads is known.
bool reads_only_values(const Call& call) noexcept;

// Runs the op on the values; nothing when that does not work out. In-place changes have then been
// made to the values.
std::optional<ValueRun> run_on_values(Engine& engine, const Call& call);

}  // namespace peakline::vgpu
