// Allocation by allocation as torch's CUDA code does it. Source:
// aten/src/ATen/native/transformers/cuda/attention.cu.
#include "vgpu/nested/fast_attention.h"

#include <ATen/ATen.h>
#include <ATen/NestedTensorImpl.h>

#include "vgpu/attention_choice.h"
#include "vgpu/values.h"

namespace peakline::vgpu {
namespace {

using Result = std::tuple<at::Tensor, at::Tensor>;

struct Weights {
  const at::Tensor& qkv;
  const at::Tensor& qkv_bias;
  const at::Tensor& proj;
  const at::Tensor& proj_bias;
  std::int64_t heads;
  std::int64_t width;  // of all heads together

  [[nodiscard]] std::int64_t head() const { return width / heads; }
};

at::Tensor by_heads(const at::Tensor& x, const Weights& w) {
  return x.view({x.size(0), -1, w.heads, w.head()}).transpose(1, 2);
}

// Fused attention over one projection for queries, keys and values.
Result fused(const at::Tensor& query, const Weights& w, const std::optional<at::Tensor>& mask) {
  const at::Tensor x = at::linear(query, w.qkv, w.qkv_bias);
  const std::vector<at::Tensor> parts = x.chunk(3, -1);
  const at::Tensor y = at::scaled_dot_product_attention(
      by_heads(parts[0], w), by_heads(parts[1], w), by_heads(parts[2], w), mask);
  const at::Tensor rows = y.transpose(1, 2).reshape({x.size(0), -1, w.width});
  return {at::linear(rows, w.proj, w.proj_bias), at::Tensor()};
}

// Sequences of different lengths lie one after the other; the kernel is told where each begins.
Result fused_nested(const at::Tensor& query, const Weights& w) {
  const auto* impl = at::native::get_nested_tensor_impl(query);
  const at::Tensor x = at::linear(query, w.qkv, w.qkv_bias);
  const at::Tensor buffer = impl->get_unsafe_storage_as_tensor();
  const at::Tensor starts =
      at::empty({impl->get_nested_sizes().size(0) + 1}, buffer.options().dtype(at::kInt));
  const at::Tensor y = at::detail::make_tensor<at::native::NestedTensorImpl>(
      at::empty_like(buffer), impl->get_nested_sizes());
  return {at::linear(y, w.proj, w.proj_bias), at::Tensor()};
}

at::Tensor projection(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                      const Weights& w) {
  if (query.is_same(key) && key.is_same(value)) return at::matmul(query, w.qkv.t());
  const std::vector<at::Tensor> parts = w.qkv.chunk(3, 0);
  return at::cat({at::matmul(query, parts[0].t()), at::matmul(key, parts[1].t()),
                  at::matmul(value, parts[2].t())},
                 2);
}

// Scores are stored; the softmax takes their place where there is no mask, and the result that of the
// queries.
Result stored(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
              const Weights& w, const std::optional<at::Tensor>& mask, bool need_weights,
              bool average_weights, std::optional<std::int64_t> mask_type) {
  const std::int64_t batch = query.size(0);
  const std::int64_t length = query.size(1);
  at::Tensor q_k_v;
  {
    const at::Tensor qkv = projection(query, key, value, w);
    q_k_v = at::empty({3, batch * w.heads, length, w.head()}, qkv.options());
  }
  const at::Tensor q = q_k_v.select(0, 0);
  at::Tensor scores = at::bmm(q, q_k_v.select(0, 1).transpose(1, 2));
  scores = scores.view({batch, w.heads, length, length});
  if (mask) {
    scores = at::_masked_softmax(scores, *mask, 3, mask_type);
  } else {
    at::_softmax_out(scores, scores, 3, false);
  }
  at::Tensor context = q;
  at::bmm_out(context, scores.view({batch * w.heads, length, length}), q_k_v.select(0, 2));
  if (!need_weights) scores = at::Tensor();
  const at::Tensor rows = context.view({batch, w.heads, length, w.head()})
                              .permute({0, 2, 1, 3})
                              .contiguous()
                              .view({batch * length, w.width});
  at::Tensor result = at::addmm(w.proj_bias, rows, w.proj.t()).view({batch, length, w.width});
  if (need_weights && average_weights) scores = scores.sum(1).div_(w.heads);
  return {result, scores};
}

// Of a nested tensor, one as if all its sequences had one length; the choice needs no more.
bool is_fused(const at::Tensor& query, const Weights& w, const std::optional<at::Tensor>& mask) {
  constexpr std::int64_t kMath = 0;
  const at::Tensor like =
      query.is_nested()
          ? at::native::get_nested_tensor_impl(query)->get_unsafe_storage_as_tensor().view(
                {1, -1, w.width})
          : query;
  const at::Tensor q = by_heads(like, w);
  return choose_attention(q, q, q, mask, 0.0, false, std::nullopt, false) > kMath;
}

}  // namespace

Result multi_head_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            std::int64_t embed_dim, std::int64_t heads,
                            const at::Tensor& qkv_weight, const at::Tensor& qkv_bias,
                            const at::Tensor& proj_weight, const at::Tensor& proj_bias,
                            const std::optional<at::Tensor>& mask, bool need_weights,
                            bool average_weights, std::optional<std::int64_t> mask_type) {
  TORCH_CHECK(query.dim() == 3, "expected 3-D `query`, got ", query.dim(), "-D tensor");
  TORCH_CHECK(embed_dim % heads == 0, "`embed_dim` must divide evenly by `num_heads`");
  const Weights w{qkv_weight, qkv_bias, proj_weight, proj_bias, heads, embed_dim};
  const bool is_self = query.is_same(key) && key.is_same(value);
  const bool may_fuse = is_self && w.head() % 8 == 0 && !need_weights && !mask;
  if (may_fuse && is_fused(query, w, mask)) {
    return query.is_nested() ? fused_nested(query, w) : fused(query, w, mask);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      !query.is_nested(),
      "peakline's virtual GPU cannot run _native_multi_head_attention of nested tensors where no "
      "fused kernel takes them: heads must be a multiple of 8 wide");
  return stored(query, key, value, w, mask, need_weights, average_weights, mask_type);
}

}  // namespace peakline::vgpu
