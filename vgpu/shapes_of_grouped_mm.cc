// Products of several matrices at once, the experts of a layer. torch's own shape function takes
// bfloat16 alone, and pads rows on a CUDA build alone; the CUDA kernel does otherwise.
#include <ATen/ATen.h>

#include "vgpu/shape_builder.h"
#include "vgpu/shape_rule_sets.h"

namespace peakline::vgpu {
namespace {

bool is_multiplied(at::ScalarType dtype) {
  return dtype == at::kBFloat16 || dtype == at::kHalf || dtype == at::kFloat;
}

// Matrices of two dimensions are cut into groups by `offs`.
Dims product_sizes(const at::Tensor& a, const at::Tensor& b, std::int64_t groups) {
  if (a.dim() == 2 && b.dim() == 2) return {groups, a.size(0), b.size(1)};
  if (a.dim() == 2) return {a.size(0), b.size(2)};
  if (b.dim() == 2) return {a.size(1), b.size(1)};
  return {a.size(0), a.size(1), b.size(2)};
}

// Rows begin at multiples of 16 bytes.
Dims padded_strides(c10::IntArrayRef sizes, std::int64_t itemsize) {
  const std::int64_t step = 16 / itemsize;
  const std::int64_t row = (sizes.back() + step - 1) / step * step;
  if (sizes.size() == 2) return {row, 1};
  return {sizes[1] * row, row, 1};
}

void check(const at::Tensor& a, const at::Tensor& b, const c10::IValue& offs) {
  for (const at::Tensor* one : {&a, &b}) {
    TORCH_CHECK(is_multiplied(one->scalar_type()),
                "Expected a matrix of Float32, BFloat16 or Float16, got ", one->scalar_type());
    TORCH_CHECK(one->dim() == 2 || one->dim() == 3, "matrices have to be 2 or 3d");
  }
  const bool grouped = a.dim() == 2 || b.dim() == 2;
  TORCH_CHECK(offs.isTensor() == grouped,
              "Have to provide offsets if there is a 2d matrix, and none if both are 3d");
  if (a.dim() == 3 || b.dim() == 3) {
    TORCH_CHECK(a.size(-1) == b.size(-2), "contraction dimension of mat_a and mat_b must match");
  }
}

bool grouped_mm(const Call& call, ShapeBuilder& out) {
  const at::Tensor& a = call.args[0].toTensor();
  const at::Tensor& b = call.args[1].toTensor();
  const c10::IValue& offs = call.args[2];
  check(a, b, offs);
  const Dims sizes = product_sizes(a, b, offs.isTensor() ? offs.toTensor().size(0) : 0);
  out.fresh(a.scalar_type(), sizes,
            padded_strides(sizes, static_cast<std::int64_t>(a.element_size())));
  return true;
}

}  // namespace

void add_grouped_mm_rules(RuleSet& rules) { rules["aten::_grouped_mm"] = &grouped_mm; }

}  // namespace peakline::vgpu
