// Shapes that torch itself tells in Python only, for programs that have no interpreter (where Python runs
// torch is asked), and of ops for which it tells none anywhere.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>

#include <algorithm>
#include <bitset>
#include <vector>

#include "vgpu/shape_builder.h"
#include "vgpu/shape_rule_sets.h"

namespace peakline::vgpu {
namespace {

constexpr std::int64_t kNoReduction = 0;  // of a loss

const at::Tensor& tensor(const Call& call, std::size_t argument) {
  return call.args[argument].toTensor();
}

bool like_first(const Call& call, ShapeBuilder& out) {
  out.fresh_like(tensor(call, 0));
  return true;
}

// The gradient of the second argument, where the first is that of the result.
bool like_second(const Call& call, ShapeBuilder& out) {
  out.fresh_like(tensor(call, 1));
  return true;
}

// It writes into memory that is there.
bool into_fourth(const Call&, ShapeBuilder& out) {
  out.argument(3);
  return true;
}

bool index_select(const Call& call, ShapeBuilder& out) {
  const at::Tensor& self = tensor(call, 0);
  Dims sizes(self.sizes().begin(), self.sizes().end());
  if (!sizes.empty()) {
    const std::int64_t dim = at::maybe_wrap_dim(call.args[1].toInt(), self.dim());
    sizes[static_cast<std::size_t>(dim)] = tensor(call, 2).numel();
  }
  out.fresh(self.scalar_type(), sizes);
  return true;
}

// One loop over elements: the first argument of the full size decides the order of dimensions.
void elementwise(const Call& call, ShapeBuilder& out, std::size_t arguments, at::ScalarType dtype) {
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < arguments; ++i) {
    sizes = at::infer_size(sizes, tensor(call, i).sizes());
  }
  for (std::size_t i = 0; i < arguments; ++i) {
    if (tensor(call, i).sizes() == sizes) return out.fresh_like(tensor(call, i), dtype);
  }
  out.fresh(dtype, sizes);
}

bool where(const Call& call, ShapeBuilder& out) {
  elementwise(call, out, 3, at::result_type(tensor(call, 1), tensor(call, 2)));
  return true;
}

// var and std: over some dimensions, or over all.
bool variance(const Call& call, ShapeBuilder& out) {
  const at::Tensor& self = tensor(call, 0);
  const std::vector<std::int64_t> dims =
      call.args[1].isNone() ? std::vector<std::int64_t>{} : call.args[1].toIntVector();
  const auto reduced = dims.empty() ? std::bitset<at::dim_bitset_size>().set()
                                    : at::dim_list_to_bitset(dims, self.dim());
  Dims sizes;
  for (std::int64_t i = 0; i < self.dim(); ++i) {
    const bool is_reduced = reduced[static_cast<std::size_t>(i)];
    if (!is_reduced || call.args[3].toBool()) sizes.push_back(is_reduced ? 1 : self.size(i));
  }
  out.fresh(c10::toRealValueType(self.scalar_type()), sizes);
  return true;
}

bool huber_loss(const Call& call, ShapeBuilder& out) {
  const at::ScalarType dtype = at::result_type(tensor(call, 0), tensor(call, 1));
  if (call.args[2].toInt() == kNoReduction) {
    elementwise(call, out, 2, dtype);
  } else {
    out.fresh(dtype, {});
  }
  return true;
}

bool binary_cross_entropy(const Call& call, ShapeBuilder& out) {
  if (call.args[3].toInt() == kNoReduction) return like_first(call, out);
  out.fresh(tensor(call, 0).scalar_type(), {});
  return true;
}

bool adaptive_pool(const Call& call, ShapeBuilder& out) {
  const at::Tensor& self = tensor(call, 0);
  const auto asked = call.args[1].toIntVector();
  Dims sizes(self.sizes().begin(), self.sizes().end());
  std::copy(asked.begin(), asked.end(), sizes.end() - static_cast<std::ptrdiff_t>(asked.size()));
  out.fresh(self.scalar_type(), sizes, self.suggest_memory_format());
  return true;
}

bool adaptive_pool_backward(const Call& call, ShapeBuilder& out) {
  const at::Tensor& self = tensor(call, 1);
  out.fresh(self.scalar_type(), self.sizes(), self.suggest_memory_format());
  return true;
}

// Heads lie beside each other in memory, although they are a dimension of their own.
void heads_beside(ShapeBuilder& out, at::ScalarType dtype, std::int64_t batch, std::int64_t heads,
                  std::int64_t length, std::int64_t width) {
  out.fresh(dtype, {batch, heads, length, width},
            {length * heads * width, width, heads * width, 1});
}

bool efficient_attention(const Call& call, ShapeBuilder& out) {
  const at::Tensor& query = tensor(call, 0);
  const std::int64_t length = query.size(2);
  const std::int64_t rows = call.args[4].toBool() ? (length + 31) / 32 * 32 : 0;
  heads_beside(out, query.scalar_type(), query.size(0), query.size(1), length,
               tensor(call, 2).size(3));
  out.fresh(at::kFloat, {query.size(0), query.size(1), rows});
  out.fresh(at::kLong, {});  // the seed and the offset of dropout
  out.fresh(at::kLong, {});
  return true;
}

bool efficient_attention_backward(const Call& call, ShapeBuilder& out) {
  const bool has_bias = call.args[4].isTensor() && tensor(call, 4).defined();
  if (has_bias && call.args[10].toBoolList()[3]) return false;  // a gradient in padded memory
  const at::Tensor& query = tensor(call, 1);
  for (std::size_t i = 1; i <= 3; ++i) {
    const at::Tensor& input = tensor(call, i);
    heads_beside(out, input.scalar_type(), query.size(0), query.size(1), input.size(2),
                 input.size(3));
  }
  out.undefined();
  return true;
}

// What the other two kinds of attention have in common, from the third result on.
void unused_lengths(const Call& call, ShapeBuilder& out) {
  out.undefined();
  out.undefined();
  out.value(tensor(call, 0).size(2));
  out.value(tensor(call, 1).size(2));
}

bool flash_attention(const Call& call, ShapeBuilder& out) {
  if (call.args[5].toBool()) return false;  // its debug mask
  const at::Tensor& query = tensor(call, 0);
  out.fresh_like(query);
  out.fresh(at::kFloat, {query.size(0), query.size(1), query.size(2)});
  unused_lengths(call, out);
  out.fresh(at::kUInt64, {2});  // the state of dropout
  out.fresh(at::kUInt64, {});
  out.fresh(query.scalar_type(), {0});
  return true;
}

bool cudnn_attention(const Call& call, ShapeBuilder& out) {
  const at::Tensor& query = tensor(call, 0);
  if (tensor(call, 2).size(3) != query.size(3)) return false;
  out.fresh_like(query);
  out.fresh(at::kFloat, {query.size(0), query.size(1), query.size(2), 1});
  unused_lengths(call, out);
  out.fresh(at::kLong, {});
  out.fresh(at::kLong, {});
  out.undefined();
  return true;
}

bool like_query_key_value(const Call& call, ShapeBuilder& out) {
  for (std::size_t i = 1; i <= 3; ++i) out.fresh_like(tensor(call, i));
  return true;
}

// It changes what it is given, and gives nothing.
bool in_place(const Call&, ShapeBuilder&) { return true; }

RuleSet make_rules() {
  RuleSet rules;
  for (const char* name : {"relu", "hardswish", "hardtanh", "flip", "roll"}) {
    rules[std::string("aten::") + name] = &like_first;
  }
  for (const char* name : {"hardswish_backward", "hardtanh_backward", "mish_backward",
                           "mse_loss_backward", "binary_cross_entropy_backward"}) {
    rules[std::string("aten::") + name] = &like_second;
  }
  for (const char* name :
       {"_fused_sgd_", "_fused_sgd_.tensor_lr", "_fused_adagrad_", "_fused_adagrad_.tensor_lr"}) {
    rules[std::string("aten::") + name] = &in_place;
  }
  rules["aten::index_select"] = &index_select;
  rules["aten::where.self"] = &where;
  rules["aten::var.correction"] = &variance;
  rules["aten::std.correction"] = &variance;
  rules["aten::huber_loss"] = &huber_loss;
  rules["aten::huber_loss_backward.out"] = &into_fourth;
  rules["aten::binary_cross_entropy"] = &binary_cross_entropy;
  rules["aten::_adaptive_avg_pool2d"] = &adaptive_pool;
  rules["aten::_adaptive_avg_pool2d_backward"] = &adaptive_pool_backward;
  rules["aten::_scaled_dot_product_efficient_attention"] = &efficient_attention;
  rules["aten::_scaled_dot_product_efficient_attention_backward"] = &efficient_attention_backward;
  rules["aten::_scaled_dot_product_flash_attention"] = &flash_attention;
  rules["aten::_scaled_dot_product_flash_attention_backward"] = &like_query_key_value;
  rules["aten::_scaled_dot_product_cudnn_attention"] = &cudnn_attention;
  rules["aten::_scaled_dot_product_cudnn_attention_backward"] = &like_query_key_value;
  return rules;
}

}  // namespace

ShapeRule rule_without_python(const std::string& full_name) {
  static const auto* const kRules = new RuleSet(make_rules());
  const auto found = kRules->find(full_name);
  return found == kRules->end() ? nullptr : found->second;
}

}  // namespace peakline::vgpu
