// Short rules: ops that change a tensor where it is, or give tensors like one they are given.
#include <ATen/ATen.h>

#include "vgpu/shape_builder.h"
#include "vgpu/shape_rule_sets.h"

namespace peakline::vgpu {
namespace {

bool in_place(const Call&, ShapeBuilder& out) {
  out.argument(0);
  return true;
}

bool like_first(const Call& call, ShapeBuilder& out) {
  out.fresh_like(call.args[0].toTensor());
  return true;
}

bool like_second(const Call& call, ShapeBuilder& out) {
  out.fresh_like(call.args[1].toTensor());
  return true;
}

// The gradient of the second argument, where the first is that of the result.
bool gradient_of_input(const Call& call, ShapeBuilder& out) {
  out.fresh(call.args[1].toTensor().scalar_type(), call.args[1].toTensor().sizes());
  return true;
}

// Reflectors come by columns, as LAPACK has them, and one factor for each.
bool geqrf(const Call& call, ShapeBuilder& out) {
  const at::Tensor& self = call.args[0].toTensor();
  TORCH_CHECK(self.dim() >= 2, "geqrf: input must have at least 2 dimensions.");
  const std::int64_t rows = self.size(-2);
  const std::int64_t columns = self.size(-1);
  Dims sizes(self.sizes().begin(), self.sizes().end());
  std::swap(sizes[sizes.size() - 2], sizes[sizes.size() - 1]);
  Dims strides = dense_strides(sizes, at::MemoryFormat::Contiguous);
  std::swap(sizes[sizes.size() - 2], sizes[sizes.size() - 1]);
  std::swap(strides[strides.size() - 2], strides[strides.size() - 1]);
  out.fresh(self.scalar_type(), sizes, strides);
  sizes.pop_back();
  sizes.back() = std::min(rows, columns);
  out.fresh(self.scalar_type(), sizes);
  return true;
}

bool dropout(const Call& call, ShapeBuilder& out) {
  const at::Tensor& input = call.args[0].toTensor();
  out.fresh_like(input);
  out.fresh_like(input, at::kBool);
  return true;
}

bool embedding_backward(const Call& call, ShapeBuilder& out) {
  const at::Tensor& grad = call.args[0].toTensor();
  out.fresh(grad.scalar_type(), {call.args[2].toInt(), grad.size(-1)});
  return true;
}

bool all_alike(const Call& call) {
  const at::ScalarType dtype = call.tensors.empty() ? at::kLong : call.tensors[0]->scalar_type();
  if (!at::isFloatingType(dtype)) return false;
  for (const at::Tensor* tensor : call.tensors) {
    if (tensor->scalar_type() != dtype || !is_virtual(*tensor)) return false;
  }
  return true;
}

// Arithmetic of lists gives a list like the first, where types do not mix.
bool list_like_first(const Call& call, ShapeBuilder& out) {
  // A scalar comes first in _foreach_pow(2.0, list).
  if (!call.args[0].isList() || !all_alike(call)) return false;
  out.list_like(call.args[0]);
  return true;
}

bool nothing(const Call&, ShapeBuilder&) { return true; }

}  // namespace

void add_simple_rules(RuleSet& rules) {
  for (const char* name :
       {"aten::_index_put_impl_", "aten::masked_fill_", "aten::masked_scatter_", "aten::put_",
        "aten::_amp_update_scale_", "aten::random_", "aten::bernoulli_", "aten::normal_",
        "aten::uniform_", "aten::exponential_", "aten::cauchy_", "aten::log_normal_",
        "aten::geometric_"}) {
    rules[name] = &in_place;
  }
  for (const char* name :
       {"add",     "sub",       "mul",       "div",        "sqrt",    "neg",  "abs",
        "exp",     "log",       "pow",       "addcmul",    "addcdiv", "lerp", "maximum",
        "minimum", "clamp_max", "clamp_min", "reciprocal", "rsqrt",   "sign"}) {
    rules[std::string("aten::_foreach_") + name] = &list_like_first;
  }
  for (const char* name :
       {"aten::multi_margin_loss_backward", "aten::multilabel_margin_loss_backward",
        "aten::fractional_max_pool3d_backward"}) {
    rules[name] = &gradient_of_input;
  }
  for (const char* name :
       {"aten::_logcumsumexp", "aten::_sample_dirichlet", "aten::_dirichlet_grad",
        "aten::_standard_gamma_grad", "aten::binomial"}) {
    rules[name] = &like_first;
  }
  rules["aten::geqrf"] = &geqrf;
  rules["aten::native_dropout"] = &dropout;
  rules["aten::native_dropout_backward"] = &like_first;
  rules["aten::_ctc_loss_backward"] = &like_second;
  rules["aten::embedding_dense_backward"] = &embedding_backward;
  rules["aten::_assert_async"] = &nothing;
  rules["aten::_assert_async.msg"] = &nothing;
}

}  // namespace peakline::vgpu
