#include "vgpu/attention_choice.h"

#include <ATen/ATen.h>

#include "vgpu/op_call.h"

namespace peakline::vgpu {

std::int64_t choose_attention(const at::Tensor& query, const at::Tensor& key,
                              const at::Tensor& value, const std::optional<at::Tensor>& mask,
                              double dropout, bool causal, std::optional<double>, bool gqa) {
  Engine& engine = engine_or_throw("aten::scaled_dot_product_attention");
  SdpQuery asked;
  asked.query = meta_of(query);
  asked.key = meta_of(key);
  asked.value = meta_of(value);
  asked.mask = meta_of(mask.value_or(at::Tensor()));
  asked.dropout = dropout;
  asked.causal = causal;
  asked.enable_gqa = gqa;
  asked.needs_grad = at::GradMode::is_enabled() &&
                     (query.requires_grad() || key.requires_grad() || value.requires_grad());
  return static_cast<std::int64_t>(sdp_choice(asked, engine.profile(), sdp_switches()));
}

}  // namespace peakline::vgpu
