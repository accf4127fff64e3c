// Puts a shape entry together, output by output.
#pragma once

#include <c10/core/MemoryFormat.h>

#include "vgpu/call.h"
#include "vgpu/shape_cache.h"

namespace peakline::vgpu {

// For shape rules: one call per return value of the op, in order.
class ShapeBuilder {
 public:
  explicit ShapeBuilder(ShapeEntry& entry) : entry_(entry) {}

  // A new tensor, dense, in the order of dimensions that `strides` has.
  void fresh(c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides);
  void fresh(c10::ScalarType dtype, c10::IntArrayRef sizes,
             c10::MemoryFormat format = c10::MemoryFormat::Contiguous);
  // As at::empty_like(tensor) would be: the same order of dimensions where it is dense.
  void fresh_like(const at::Tensor& tensor);
  void fresh_like(const at::Tensor& tensor, c10::ScalarType dtype);
  void undefined() { entry_.outputs.emplace_back(); }
  void value(c10::IValue value);
  // A list of tensors like those of `list`, one after the other in one new storage.
  void parts_of_one(const c10::IValue& list);
  // A list of new tensors, as empty_like of each in `list`.
  void list_like(const c10::IValue& list);
  // An empty list of tensors.
  void no_tensors();
  // Argument tensor number `index` of the call.
  void argument(int index);

 private:
  ShapeEntry& entry_;
};

// Strides of a dense tensor in this format.
Dims dense_strides(c10::IntArrayRef sizes, c10::MemoryFormat format);

// The layout of an existing tensor.
Layout layout_of(const at::Tensor& tensor);

// Completes an entry: the allocations of its outputs, and what else the op takes.
void add_program(const Call& call, Engine& engine, ShapeEntry& entry);

}  // namespace peakline::vgpu
