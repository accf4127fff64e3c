// nn.MultiheadAttention's and nn.TransformerEncoderLayer's fast path in evaluation.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace peakline::vgpu {

// As _native_multi_head_attention on CUDA, of dense and of nested tensors.
std::tuple<at::Tensor, at::Tensor> multi_head_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, std::int64_t embed_dim,
    std::int64_t heads, const at::Tensor& qkv_weight, const at::Tensor& qkv_bias,
    const at::Tensor& proj_weight, const at::Tensor& proj_bias,
    const std::optional<at::Tensor>& mask, bool need_weights, bool average_weights,
    std::optional<std::int64_t> mask_type);

}  // namespace peakline::vgpu
