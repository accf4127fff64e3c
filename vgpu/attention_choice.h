// Which attention kernel the target GPU would run: torch's C++ asks a function instead of an op.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace peakline::vgpu {

// Stands for torch's choice of an attention backend on CUDA (SDPBackend as a number).
std::int64_t choose_attention(const at::Tensor& query, const at::Tensor& key,
                              const at::Tensor& value, const std::optional<at::Tensor>& mask,
                              double dropout, bool causal, std::optional<double> scale, bool gqa);

}  // namespace peakline::vgpu
