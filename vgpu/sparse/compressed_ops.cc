// Compressed sparse tensors (CSR and its like) in products and sums. Sources:
// aten/src/ATen/native/sparse/cuda/SparseBlas.cpp, SparseBlasImpl.cpp, SparseCsrTensorMath.cu.
#include "vgpu/sparse/compressed_ops.h"

#include <ATen/ATen.h>
#include <ATen/SparseCsrTensorImpl.h>

#include "vgpu/values.h"

namespace peakline::vgpu {
namespace {

bool is_dense(const at::Tensor& tensor) { return tensor.layout() == at::kStrided; }

// cuSPARSE reads rows or columns that lie one after the other; anything else is copied.
at::Tensor readable(const at::Tensor& matrix) {
  const bool by_rows = matrix.stride(-1) == 1 && matrix.stride(-2) >= matrix.size(-1);
  const bool by_columns = matrix.stride(-2) == 1 && matrix.stride(-1) >= matrix.size(-2);
  return by_rows || by_columns ? matrix : matrix.clone(at::MemoryFormat::Contiguous);
}

void begin_with(at::Tensor& out, const at::Tensor& self, const at::Scalar& beta) {
  if (beta.toComplexDouble() == 0.0) {
    out.zero_();
  } else if (!out.is_same(self)) {
    out.copy_(self.expand(out.sizes()));
  }
}

// A new pattern of at most `count` elements, which nobody knows, like that of `self`.
at::Tensor& become(at::Tensor& out, const at::Tensor& self, std::int64_t count,
                   at::IntArrayRef sizes, const char* op) {
  Engine& gpu = engine_or_throw(op);
  gpu.ask(op, Decides::kSize);
  gpu.note_outputs_only(op);
  const bool by_rows = self.layout() == at::kSparseCsr || self.layout() == at::kSparseBsr;
  const at::Tensor starts = by_rows ? self.crow_indices() : self.ccol_indices();
  const std::int64_t lines = sizes[by_rows ? 0 : 1];
  const at::Tensor fresh_starts = at::empty({lines + 1}, starts.options());
  const at::Tensor places = at::empty({count}, starts.options());
  const at::Tensor values = at::empty({count}, self.values().options().dtype(out.scalar_type()));
  static_cast<at::SparseCsrTensorImpl*>(out.unsafeGetTensorImpl())
      ->set_member_tensors(fresh_starts, places, values, sizes);
  return out;
}

at::Tensor& addmm_out(const at::Tensor& self, const at::Tensor& one, const at::Tensor& two,
                      const at::Scalar& beta, const at::Scalar&, at::Tensor& out) {
  TORCH_CHECK(one.dim() == 2 && two.dim() == 2 && one.size(1) == two.size(0),
              "mat1 and mat2 shapes cannot be multiplied (", one.sizes(), " and ", two.sizes(),
              ")");
  const std::vector<std::int64_t> sizes{one.size(0), two.size(1)};
  if (!is_dense(out)) {
    const std::int64_t product = one._nnz() * std::min(two._nnz(), sizes[1]);
    const std::int64_t most = std::min(sizes[0] * sizes[1], product + self._nnz());
    return become(out, one, most, sizes, "aten::addmm");
  }
  out.resize_(sizes);
  begin_with(out, self, beta);
  const at::Tensor first = is_dense(one) ? readable(one) : one;
  const at::Tensor second = is_dense(two) ? readable(two) : two;
  forget_values(out);
  return out;
}

at::Tensor& addmv_out(const at::Tensor& self, const at::Tensor& matrix, const at::Tensor& vector,
                      const at::Scalar& beta, const at::Scalar&, at::Tensor& out) {
  TORCH_CHECK(matrix.size(1) == vector.size(0), "size mismatch, got input (", self.size(0),
              "), mat (", matrix.size(0), "x", matrix.size(1), "), vec (", vector.size(0), ")");
  out.resize_({matrix.size(0)});
  begin_with(out, self, beta);
  forget_values(out);
  return out;
}

at::Tensor& add_out(const at::Tensor& self, const at::Tensor& other, const at::Scalar&,
                    at::Tensor& out) {
  if (is_dense(self)) {
    out.resize_as_(self);
    if (!out.is_same(self)) out.copy_(self);
    forget_values(out);
    return out;
  }
  TORCH_CHECK(self.sizes().equals(other.sizes()),
              "add: expected 'self' and 'other' to have same size, but ", self.sizes(),
              " != ", other.sizes());
  const std::int64_t most = std::min(self.numel(), self._nnz() + other._nnz());
  return become(out, self, most, self.sizes(), "aten::add");
}

at::Tensor& baddbmm_out(const at::Tensor& self, const at::Tensor& one, const at::Tensor& two,
                        const at::Scalar& beta, const at::Scalar&, at::Tensor& out) {
  out.resize_({one.size(0), one.size(1), two.size(2)});
  begin_with(out, self, beta);
  const at::Tensor second = readable(two);
  forget_values(out);
  return out;
}

at::Tensor& bmm_out(const at::Tensor& one, const at::Tensor& two, at::Tensor& out) {
  return baddbmm_out(out, one, two, 0, 1, out);
}

// The product, where `self` has elements.
at::Tensor sampled_addmm(const at::Tensor& self, const at::Tensor& one, const at::Tensor& two,
                         const at::Scalar&, const at::Scalar&) {
  const at::Tensor first = readable(one);
  const at::Tensor second = readable(two);
  return self.clone();
}

at::Tensor& sampled_addmm_out(const at::Tensor& self, const at::Tensor& one, const at::Tensor& two,
                              const at::Scalar&, const at::Scalar&, at::Tensor& out) {
  const at::Tensor first = readable(one);
  const at::Tensor second = readable(two);
  if (!out.is_same(self)) out.resize_as_sparse_(self).copy_(self);
  return out;
}

}  // namespace

std::set<std::string> add_compressed_ops(torch::Library& aten) {
  aten.impl("addmm.out", TORCH_FN(addmm_out));
  aten.impl("addmv.out", TORCH_FN(addmv_out));
  aten.impl("add.out", TORCH_FN(add_out));
  aten.impl("baddbmm.out", TORCH_FN(baddbmm_out));
  aten.impl("bmm.out", TORCH_FN(bmm_out));
  aten.impl("sparse_sampled_addmm", TORCH_FN(sampled_addmm));
  aten.impl("sparse_sampled_addmm.out", TORCH_FN(sampled_addmm_out));
  return {"addmm.out",
          "addmv.out",
          "add.out",
          "baddbmm.out",
          "bmm.out",
          "sparse_sampled_addmm",
          "sparse_sampled_addmm.out"};
}

}  // namespace peakline::vgpu
