// Source: aten/src/ATen/native/BatchLinearAlgebra.cpp (linalg_lstsq_out).
#include "vgpu/least_squares.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <vector>

#include "vgpu/engine.h"

namespace peakline::vgpu {
namespace {

std::vector<std::int64_t> joined(at::IntArrayRef batch, std::initializer_list<std::int64_t> last) {
  std::vector<std::int64_t> sizes = batch.vec();
  sizes.insert(sizes.end(), last);
  return sizes;
}

// Matrices are worked on by columns, in copies.
at::Tensor by_columns(at::IntArrayRef batch, std::int64_t rows, std::int64_t columns,
                      const at::TensorOptions& options) {
  return at::empty(joined(batch, {columns, rows}), options).mT();
}

bool is_vector(const at::Tensor& self, const at::Tensor& b) {
  return b.dim() == 1 ||
         (self.dim() - 1 == b.dim() && b.sizes() == self.sizes().slice(0, self.dim() - 1));
}

}  // namespace

std::tuple<at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor&> least_squares(
    const at::Tensor& self, const at::Tensor& b, std::optional<double>,
    std::optional<std::string_view> driver, at::Tensor& solution, at::Tensor& residuals,
    at::Tensor& rank, at::Tensor& singular_values) {
  TORCH_CHECK(self.dim() >= 2, "torch.linalg.lstsq: input must have at least 2 dimensions.");
  TORCH_CHECK(!driver || *driver == "gels",
              "torch.linalg.lstsq: parameter `driver` should be one of (gels) on cuda");
  engine_or_throw("aten::linalg_lstsq").note_outputs_only("aten::linalg_lstsq");
  const bool vector = is_vector(self, b);
  const at::Tensor right = vector ? b.unsqueeze(-1) : b;
  const std::int64_t rows = self.size(-2);
  const std::int64_t unknowns = self.size(-1);
  const std::int64_t columns = right.size(-1);
  TORCH_CHECK(right.size(-2) == rows, "torch.linalg.lstsq: input.size(-2) should match other.size(",
              vector ? "-1" : "-2", ")");
  const std::vector<std::int64_t> batch = at::infer_size(self.sizes().slice(0, self.dim() - 2),
                                                         right.sizes().slice(0, right.dim() - 2));
  const at::Tensor work = by_columns(batch, rows, unknowns, self.options());
  const at::Tensor both = by_columns(batch, std::max(rows, unknowns), columns, self.options());
  solution.resize_(vector ? joined(batch, {unknowns}) : joined(batch, {unknowns, columns}));
  if (rows > unknowns && unknowns > 0) {
    residuals.resize_(vector ? batch : joined(batch, {columns}));
  } else {
    residuals.resize_({0});
  }
  rank.resize_({0});
  singular_values.resize_({0});
  return {solution, residuals, rank, singular_values};
}

}  // namespace peakline::vgpu
