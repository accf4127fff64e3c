#include <ATen/ATen.h>

#include "vgpu/kernel_choice.h"

namespace peakline::vgpu {

std::int64_t choose_attention(const at::Tensor& query, const at::Tensor&, const at::Tensor&,
                              const std::optional<at::Tensor>& mask, double, bool,
                              std::optional<double>, bool gqa) {
  const bool half = query.scalar_type() == at::kHalf || query.scalar_type() == at::kBFloat16;
  if (half) return mask.has_value() && mask->defined() ? 2 : 3;
  return gqa ? 0 : 2;
}

}  // namespace peakline::vgpu
