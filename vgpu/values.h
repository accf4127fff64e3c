// What a program may know of its tensors' values: who keeps it, and who answers when it asks.
//
// Ops do not compute values. They remember how (values/computation.h), for those that follow from
// what is known, and somebody who reads a value has it computed then.
#pragma once

#include <optional>

#include "vgpu/call.h"
#include "vgpu/shape_cache.h"
#include "vgpu/values/computation.h"

namespace peakline::vgpu {

inline void forget_values(const at::Tensor& tensor) noexcept {
  if (StorageRecord* record = record_of(tensor); record != nullptr) record->value.reset();
}

// --- Reading: computes what was put off. ---

// The values as a host tensor that must not be written to; nothing where one of them is unknown.
std::optional<at::Tensor> known_values(const at::Tensor& tensor);
// The intervals of the elements, with the tensor's sizes or, where they are all alike, without
// dimensions; none for types that have no order.
std::optional<Bounds> bounds_of(const at::Tensor& tensor);
// The values, made up where they are unknown; then the question is counted as one of `what`.
at::Tensor answered_values(Engine& engine, const at::Tensor& tensor, const char* what,
                           Decides decides);

// --- Writing ---

// All of the tensor's elements become `number`.
void fill_values(Engine& engine, at::Tensor& tensor, const at::Scalar& number);
// They become those of `source`, on the GPU or on the host.
void copy_values(Engine& engine, at::Tensor& tensor, const at::Tensor& source);
// Values for a tensor that has just been made, or that was resized.
void give_values(Engine& engine, const at::Tensor& tensor, const at::Tensor& values);
// The values stand for others that nobody can know, and count as an assumption where they are read.
void assume(const at::Tensor& tensor);

// --- Following ops ---

// What will be known of the results.
enum class Follow : std::uint8_t {
  kNothing,
  kRange,   // what the op itself says
  kBounds,  // what its rule says, given the operands
  kExact,   // everything
};
// Looks at the operands alone; to be asked before the op runs.
Follow what_follows(const Call& call) noexcept;

// After the op has run: its results remember how they came about, or nothing.
void follow(Engine& engine, const Call& call, Follow how, const ShapeEntry& entry,
            torch::jit::Stack& results);

// What an op gave when it was run on values.
struct ValueRun {
  torch::jit::Stack results;
  c10::SmallVector<at::Tensor, 16> stand_ins;
};
// Runs the op now, for those who need its results to go on; nothing when that does not work out.
std::optional<ValueRun> run_on_values(Engine& engine, const Call& call);
// Its results' values become those of the tensors of the call.
void keep_values(Engine& engine, const Call& call, const ShapeEntry& entry, const ValueRun& run,
                 torch::jit::Stack& results);

}  // namespace peakline::vgpu
