// COO tensors, allocation by allocation as torch's CUDA code does it. Sources:
// aten/src/ATen/native/sparse/cuda/SparseCUDATensor.cu, SparseCUDATensorMath.cu.
//
// How many elements are left after equal ones are added up, or which two tensors share, is a matter
// of values. Where these are unknown, places count as drawn evenly, and what is shared as the most
// that there can be.
#include "vgpu/sparse/coo_ops.h"

#include <ATen/ATen.h>
#include <ATen/native/SparseTensorUtils.h>

#include <algorithm>
#include <cmath>

#include "vgpu/run_program.h"
#include "vgpu/values.h"
#include "vgpu/values/host_run.h"

namespace peakline::vgpu {
namespace {

using at::sparse::alias_into_sparse;
using at::sparse::get_sparse_impl;

Engine& engine(const char* op) { return engine_or_throw(op); }

// As many places as the sparse dimensions have.
std::int64_t places(const at::Tensor& sparse) {
  return c10::multiply_integers(sparse.sizes().slice(0, sparse.sparse_dim()));
}

at::Tensor with_count(const at::Tensor& values, std::int64_t count) {
  return at::sparse::new_values_with_size_of(values, count);
}

at::Tensor make(const at::Tensor& indices, const at::Tensor& values, at::IntArrayRef sizes,
                bool coalesced) {
  at::Tensor made = at::_sparse_coo_tensor_unsafe(indices, values, sizes);
  return made._coalesced_(coalesced);
}

// The different numbers in order, where they are known.
std::optional<at::Tensor> different(const at::Tensor& flat) {
  const std::optional<at::Tensor> known = known_values(flat);
  if (!known) return std::nullopt;
  const HostRun host;
  return std::get<0>(at::_unique2(*known, /*sorted=*/true));
}

// CUB sorts the places with their order, and keeps the first of each run of equal ones.
void sort_and_select(const at::Tensor& flat) {
  static OpName op{"aten::_coalesce", 0, {}};
  OpCall call;
  call.name = "aten::_coalesce";
  call.arguments = {flat.numel()};
  run_scratch(engine("aten::_coalesce"), static_cast<int>(flat.device().index()), call, op);
}

// Places in all sparse dimensions, from places in the flattened one.
at::Tensor unflatten(at::Tensor flat, const at::Tensor& like, at::IntArrayRef sizes) {
  const std::int64_t dims = like.size(0);
  if (dims == 1) return flat;
  at::Tensor indices = at::empty({dims, flat.size(1)}, like.options());
  for (std::int64_t d = dims - 1; d >= 0; --d) {
    const std::int64_t size = sizes[static_cast<std::size_t>(d)];
    at::Tensor row = indices.narrow(0, d, 1);
    row.copy_(flat);
    flat.divide_(size, "trunc");
    row.add_(flat, -size);
  }
  return indices;
}

// How many of `places` are met by `draws` that fall on all of them alike. Where some places are met
// more often than others, as words are, it is fewer.
std::int64_t expected_different(std::int64_t draws, std::int64_t places) {
  const double n = static_cast<double>(places);
  const double met = -n * std::expm1(static_cast<double>(draws) * std::log1p(-1.0 / n));
  return places < 2 ? places : std::clamp<std::int64_t>(std::llround(met), 1, draws);
}

at::Tensor coalesce(const at::Tensor& self) {
  const std::int64_t before = self._nnz();
  if (before < 2) return self.clone()._coalesced_(true);
  Engine& gpu = engine("aten::_coalesce");
  at::Tensor flat = at::sparse::flatten_indices(self._indices(), self.sizes(), true);
  const at::Tensor order = at::empty({before}, self._indices().options());
  const at::Tensor firsts = at::empty({before}, self._indices().options());
  sort_and_select(flat);
  const std::optional<at::Tensor> known = different(flat);
  if (!known) gpu.ask("aten::_coalesce", Decides::kSize);
  const std::int64_t after = known ? known->numel() : expected_different(before, places(self));
  flat.resize_({1, after});
  forget_values(flat);
  if (known && after == before) give_values(gpu, flat, known->view({1, after}));
  at::Tensor values = with_count(self._values(), after);
  if (values.numel() > 0) self._values().contiguous();
  return make(unflatten(flat, self._indices(), self.sizes()), values, self.sizes(), true);
}

at::Tensor& add_to_dense(at::Tensor& out, const at::Tensor& dense, const at::Tensor& sparse,
                         const at::Scalar& alpha) {
  TORCH_CHECK(dense.sizes().equals(sparse.sizes()),
              "add: expected 'self' and 'other' to have same size, but self has size ",
              dense.sizes(), " while other has size ", sparse.sizes(),
              " (FYI: dense-sparse addition does not currently support broadcasting)");
  const at::ScalarType common = at::result_type(dense, sparse);
  TORCH_CHECK(canCast(common, out.scalar_type()), "Can't convert result type ", common,
              " to output ", out.scalar_type());
  at::Tensor sum = out;
  if (out.scalar_type() != common) sum = at::empty_like(dense, out.options().dtype(common));
  const at::Tensor summand = dense.to(common);
  at::Tensor values = sparse._values().to(common);
  if (!sum.is_same(summand)) {
    sum.resize_as_(dense);
    sum.copy_(summand);
  }
  if (values.numel() == 0) return out;
  if (sparse.is_coalesced()) {
    if (sparse.dense_dim() > 0) values = values.contiguous();
    forget_values(sum);
  } else {
    const at::Tensor flat = at::sparse::flatten_indices(sparse._indices(), sparse.sizes());
    const std::int64_t rows = places(sparse);
    const std::int64_t columns = rows == 0 ? 0 : sum.numel() / rows;
    sum.view({rows, columns}).index_add_(0, flat, values.reshape({sparse._nnz(), columns}), alpha);
  }
  return out.copy_(sum);
}

at::Tensor& add_out(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha,
                    at::Tensor& out) {
  if (!self.is_sparse()) return add_to_dense(out, self, other, alpha);
  TORCH_CHECK(other.is_sparse(),
              "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
  TORCH_CHECK(self.sizes().equals(other.sizes()),
              "add: expected 'self' and 'other' to have same size, but ", self.sizes(),
              " != ", other.sizes());
  if (other._nnz() == 0) return at::copy_sparse_to_sparse_(out, self);
  if (self._nnz() == 0) return at::mul_out(out, other, at::scalar_tensor(alpha));
  TORCH_CHECK(at::sparse::is_same_density(self, other),
              "add: expected 'self' and 'other' to have same density, but 'self' has ",
              self.sparse_dim(), " sparse dimensions while 'other' has ", other.sparse_dim(),
              " sparse dimensions");
  const at::ScalarType common = at::result_type(self, other);
  const at::Tensor values = self._values().to(common);
  at::Tensor added = other._values().to(common);
  if (alpha.toComplexDouble() != 1.0) added = added.mul(alpha);
  const at::Tensor indices = at::cat({self._indices(), other._indices()}, 1);
  const at::Tensor all = at::cat({values, added}, 0).to(out.scalar_type());
  out.resize_as_(other);
  alias_into_sparse(out, indices, all);
  get_sparse_impl(out)->set_coalesced(false);
  if (out._nnz() > out.numel()) {
    const at::Tensor fewer = out.coalesce();
    alias_into_sparse(out, fewer._indices(), fewer._values());
  }
  return out;
}

// The elements of `dense` where `sparse` has some.
at::Tensor gathered(const at::Tensor& dense, const at::Tensor& sparse) {
  if (dense.numel() == 1) return dense.reshape({});
  const at::Tensor expanded = dense.expand(sparse.sizes());
  c10::List<std::optional<at::Tensor>> where;
  for (const at::Tensor& row : sparse._indices().unbind(0)) where.push_back(row);
  return at::index(expanded, where);
}

at::Tensor& become(at::Tensor& out, const at::Tensor& indices, const at::Tensor& values,
                   const at::Tensor& shaped_like) {
  get_sparse_impl(out)->raw_resize_(shaped_like.sparse_dim(), shaped_like.dense_dim(),
                                    shaped_like.sizes());
  alias_into_sparse(out, indices, values.to(out.scalar_type()));
  get_sparse_impl(out)->set_coalesced(shaped_like.is_coalesced());
  return out;
}

at::Tensor& multiply_by_dense(const at::Tensor& dense, const at::Tensor& sparse, at::Tensor& out) {
  const at::Tensor values = sparse._values().mul(gathered(dense, sparse));
  return become(out, sparse._indices().clone(), values, sparse);
}

// What two tensors share is at most the smaller of them.
at::Tensor& mul_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  if (!other.is_sparse()) return multiply_by_dense(other, self, out);
  if (!self.is_sparse()) return multiply_by_dense(self, other, out);
  if (other.dim() == 0) return multiply_by_dense(other.to_dense(), self, out);
  if (self.dim() == 0) return multiply_by_dense(self.to_dense(), other, out);
  Engine& gpu = engine("aten::mul");
  const at::Tensor one = self.coalesce();
  const at::Tensor two = other.coalesce();
  const at::Tensor& smaller = one._nnz() <= two._nnz() ? one : two;
  if (smaller._nnz() > 0) gpu.ask("aten::mul", Decides::kSize);
  gpu.note_outputs_only("aten::mul");
  const at::ScalarType common = at::result_type(self, other);
  const at::Tensor values =
      at::empty_like(smaller._values(), smaller._values().options().dtype(common));
  return become(out, smaller._indices().clone(), values, smaller);
}

// cuSPARSE wants 32-bit rows, compressed, and a result by columns.
void multiply(const at::Tensor& sparse, const at::Tensor& dense, at::Tensor& out) {
  const at::Tensor indices = sparse._indices();
  const at::TensorOptions narrow = indices.options().dtype(at::kInt);
  const at::Tensor starts = at::empty({sparse.size(0) + 1}, narrow);
  at::empty({indices.size(1)}, narrow);  // rows, until they are compressed
  const at::Tensor columns = at::empty({indices.size(1)}, narrow);
  const bool by_columns = out.stride(0) == 1 && out.stride(1) == out.size(0);
  const at::Tensor turned = by_columns ? out : at::empty({out.size(1), out.size(0)}, out.options());
  const bool is_usable = (dense.stride(0) == 1 && dense.stride(1) == dense.size(0)) ||
                         (dense.stride(1) == 1 && dense.stride(0) != dense.size(1));
  const at::Tensor second = is_usable ? dense : dense.contiguous();
  forget_values(out);
}

at::Tensor& addmm_out(const at::Tensor& self, const at::Tensor& sparse, const at::Tensor& dense,
                      const at::Scalar& beta, const at::Scalar&, at::Tensor& out) {
  TORCH_CHECK(dense.dim() == 2, "addmm: 2D tensor expected, got ", dense.dim(), "D tensor");
  TORCH_CHECK(sparse.sparse_dim() == 2 && sparse.dense_dim() == 0,
              "addmm: expected a matrix with two sparse dimensions, but got ", sparse.sparse_dim());
  TORCH_CHECK(dense.size(0) == sparse.size(1), "addmm: Argument #3 (dense): Expected dim 0 size ",
              sparse.size(1), ", got ", dense.size(0));
  const std::vector<std::int64_t> sizes{sparse.size(0), dense.size(1)};
  const at::Tensor summand = self.expand(sizes);
  out.resize_(sizes);
  const at::Tensor coalesced = sparse.coalesce();
  if (beta.toComplexDouble() == 0.0) {
    out.zero_();
  } else if (!out.is_same(self)) {
    out.copy_(summand);
  }
  if (coalesced._nnz() > 0) multiply(coalesced, dense, out);
  return out;
}

at::Tensor addmm(const at::Tensor& self, const at::Tensor& sparse, const at::Tensor& dense,
                 const at::Scalar& beta, const at::Scalar& alpha) {
  at::Tensor out = at::empty({0}, self.options());
  return addmm_out(self, sparse, dense, beta, alpha, out);
}

at::Tensor& addmm_in_place(at::Tensor& self, const at::Tensor& sparse, const at::Tensor& dense,
                           const at::Scalar& beta, const at::Scalar& alpha) {
  return addmm_out(self, sparse, dense, beta, alpha, self);
}

at::Tensor& bmm_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  TORCH_CHECK(self.sparse_dim() == 3 && self.dense_dim() == 0 && other.dim() == 3,
              "bmm_sparse: expected three dimensions, all sparse in the first tensor");
  TORCH_CHECK(self.size(2) == other.size(1), "bmm_sparse: sizes ", self.sizes(), " and ",
              other.sizes(), " do not fit");
  out.resize_({self.size(0), other.size(2), self.size(1)});
  const at::Tensor coalesced = self.coalesce();
  const at::Tensor dense = other.contiguous();
  const at::Tensor rows = coalesced._indices().select(0, 1).to(at::kInt);
  const at::Tensor columns = coalesced._indices().select(0, 2).to(at::kInt);
  forget_values(out);
  out.transpose_(1, 2);
  return out;
}

at::Tensor bmm(const at::Tensor& self, const at::Tensor& other) {
  at::Tensor out = at::empty({self.size(0), other.size(2), self.size(1)}, other.options());
  return bmm_out(self, other, out);
}

// A product's rows that have elements, as a tensor with one sparse dimension.
at::Tensor& hspmm_out(const at::Tensor& self, const at::Tensor& dense, at::Tensor& out) {
  const at::Tensor coalesced = self.coalesce();
  const std::int64_t count = coalesced._nnz();
  at::Tensor indices = at::empty({1, count}, coalesced._indices().options());
  at::Tensor values = at::empty({dense.size(1), count}, dense.options()).transpose_(0, 1);
  const at::Tensor copy = coalesced.clone();
  if (count > 0) multiply(copy, dense, values);
  get_sparse_impl(out)->resize_and_clear_(1, 1, {self.size(0), dense.size(1)});
  alias_into_sparse(out, indices, values);
  return out;
}

at::Tensor hspmm(const at::Tensor& self, const at::Tensor& dense) {
  at::Tensor out = at::empty({0}, self.options());
  return hspmm_out(self, dense, out);
}

// A row of the result has no more elements than both matrices allow.
at::Tensor matmul(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.dim() == 2 && other.dim() == 2 && self.size(1) == other.size(0),
              "mat1 and mat2 shapes cannot be multiplied (", self.sizes(), " and ", other.sizes(),
              ")");
  Engine& gpu = engine("aten::_sparse_sparse_matmul");
  const at::Tensor one = self.coalesce();
  const at::Tensor two = other.coalesce();
  const std::int64_t rows = self.size(0);
  const std::int64_t columns = other.size(1);
  const std::int64_t most =
      std::min({rows * columns, one._nnz() * std::min(columns, two._nnz()), two._nnz() * rows});
  gpu.ask("aten::_sparse_sparse_matmul", Decides::kSize);
  gpu.note_outputs_only("aten::_sparse_sparse_matmul");
  const at::Tensor indices = at::empty({2, most}, one._indices().options());
  return make(indices, with_count(one._values(), most), {rows, columns}, true);
}

at::Tensor index_select(const at::Tensor& self, std::int64_t dim, const at::Tensor& index) {
  const std::int64_t at = c10::maybe_wrap_dim(dim, self.dim());
  std::vector<std::int64_t> sizes = self.sizes().vec();
  sizes[static_cast<std::size_t>(at)] = index.numel();
  if (at >= self.sparse_dim()) {
    const at::Tensor values = self._values().index_select(at - self.sparse_dim() + 1, index);
    return make(self._indices(), values, sizes, self.is_coalesced());
  }
  Engine& gpu = engine("aten::index_select");
  gpu.ask("aten::index_select", Decides::kSize);
  gpu.note_outputs_only("aten::index_select");
  const std::int64_t size = std::max<std::int64_t>(1, self.size(at));
  const std::int64_t times = (index.numel() + size - 1) / size;
  const std::int64_t count = self._nnz() * times;
  const at::Tensor indices = at::empty({self.sparse_dim(), count}, self._indices().options());
  return make(indices, with_count(self._values(), count), sizes, false);
}

// Softmax and its gradient have elements where their input has.
at::Tensor like_coalesced(const char* op, const at::Tensor& self, at::ScalarType dtype) {
  engine(op).note_outputs_only(op);
  const at::Tensor input = self.coalesce();
  const at::Tensor values = at::empty_like(input._values(), input._values().options().dtype(dtype));
  return make(input._indices().clone(), values, input.sizes(), true);
}

at::Tensor softmax(const at::Tensor& self, std::int64_t, bool) {
  return like_coalesced("aten::_sparse_softmax", self, self.scalar_type());
}

at::Tensor softmax_backward(const at::Tensor& gradient, const at::Tensor& output, std::int64_t,
                            const at::Tensor&) {
  return like_coalesced("aten::_sparse_softmax_backward_data", output, gradient.scalar_type());
}

// What is summed over dense dimensions is spread over them again.
at::Tensor spread(const at::Tensor& values, const at::Tensor& like, at::IntArrayRef dense_dims) {
  at::Tensor wide = values;
  for (const std::int64_t dim : dense_dims) wide = wide.unsqueeze(dim);
  std::vector<std::int64_t> sizes = like.sizes().vec();
  sizes[0] = values.size(0);
  return wide.expand(sizes).clone(at::MemoryFormat::Contiguous);
}

at::Tensor sum_backward(const at::Tensor& gradient, const at::Tensor& self, at::IntArrayRef dims) {
  if (gradient.numel() == 0 || (gradient.is_sparse() && gradient._nnz() == 0)) {
    return at::zeros_like(self);
  }
  const at::Tensor input = self.coalesce();
  std::vector<std::int64_t> dense_dims;
  std::int64_t sparse_summed = 0;
  for (const std::int64_t dim : dims) {
    const std::int64_t at = c10::maybe_wrap_dim(dim, input.dim());
    if (at < input.sparse_dim())
      ++sparse_summed;
    else
      dense_dims.push_back(at + 1 - input.sparse_dim());
  }
  std::sort(dense_dims.begin(), dense_dims.end());
  at::Tensor values;
  if (sparse_summed == input.sparse_dim()) {
    at::Tensor row = gradient;
    for (const std::int64_t dim : dense_dims) row = row.unsqueeze(dim - 1);
    values = row.expand(input._values().sizes()).clone(at::MemoryFormat::Contiguous);
  } else {
    const at::Tensor summed = gradient.coalesce();
    const at::Tensor wide = dense_dims.empty()
                                ? summed._values()
                                : spread(summed._values(), input._values(), dense_dims);
    values =
        sparse_summed == 0 ? wide : at::empty_like(input._values(), summed._values().options());
  }
  return make(input._indices().clone(at::MemoryFormat::Contiguous), values, input.sizes(), true);
}

}  // namespace

std::set<std::string> add_coo_ops(torch::Library& aten) {
  aten.impl("_coalesce", TORCH_FN(coalesce));
  aten.impl("add.out", TORCH_FN(add_out));
  aten.impl("mul.out", TORCH_FN(mul_out));
  aten.impl("addmm", TORCH_FN(addmm));
  aten.impl("addmm_", TORCH_FN(addmm_in_place));
  aten.impl("addmm.out", TORCH_FN(addmm_out));
  aten.impl("bmm", TORCH_FN(bmm));
  aten.impl("bmm.out", TORCH_FN(bmm_out));
  aten.impl("hspmm", TORCH_FN(hspmm));
  aten.impl("hspmm.out", TORCH_FN(hspmm_out));
  aten.impl("_sparse_sparse_matmul", TORCH_FN(matmul));
  aten.impl("index_select", TORCH_FN(index_select));
  aten.impl("_sparse_softmax", TORCH_FN(softmax));
  aten.impl("_sparse_log_softmax", TORCH_FN(softmax));
  aten.impl("_sparse_softmax_backward_data", TORCH_FN(softmax_backward));
  aten.impl("_sparse_log_softmax_backward_data", TORCH_FN(softmax_backward));
  aten.impl("_sparse_sum_backward", TORCH_FN(sum_backward));
  return {"_coalesce",
          "add.out",
          "mul.out",
          "addmm",
          "addmm_",
          "addmm.out",
          "bmm",
          "bmm.out",
          "hspmm",
          "hspmm.out",
          "_sparse_sparse_matmul",
          "index_select",
          "_sparse_softmax",
          "_sparse_log_softmax",
          "_sparse_softmax_backward_data",
          "_sparse_log_softmax_backward_data",
          "_sparse_sum_backward"};
}

}  // namespace peakline::vgpu
