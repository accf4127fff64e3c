#include "vgpu/attention_choice.h"

#include <ATen/ATen.h>

#include "vgpu/op_call.h"

namespace peakline::vgpu {
namespace {

// A compiler asks with sizes that are not known yet. They are taken to be usual ones, the same for
// every tensor: a choice must not tie the code to the sizes of its first call.
constexpr std::int64_t kUsualSize = 1024;

std::vector<std::int64_t> usual(c10::SymIntArrayRef sizes) {
  std::vector<std::int64_t> known;
  for (const c10::SymInt& size : sizes) known.push_back(size.maybe_as_int().value_or(kUsualSize));
  return known;
}

TensorMeta asked_meta(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    return meta_of(tensor);
  }
  TensorMeta meta;
  meta.sizes = usual(tensor.sym_sizes());
  meta.strides = usual(tensor.sym_strides());
  meta.dtype = static_cast<DType>(tensor.scalar_type());
  meta.on_gpu = tensor.is_cuda();
  meta.requires_grad = tensor.requires_grad();
  return meta;
}

}  // namespace

std::int64_t choose_attention(const at::Tensor& query, const at::Tensor& key,
                              const at::Tensor& value, const std::optional<at::Tensor>& mask,
                              double dropout, bool causal, std::optional<double>, bool gqa) {
  Engine& engine = engine_or_throw("aten::scaled_dot_product_attention");
  SdpQuery asked;
  asked.query = asked_meta(query);
  asked.key = asked_meta(key);
  asked.value = asked_meta(value);
  asked.mask = asked_meta(mask.value_or(at::Tensor()));
  asked.dropout = dropout;
  asked.causal = causal;
  asked.enable_gqa = gqa;
  asked.needs_grad = at::GradMode::is_enabled() &&
                     (query.requires_grad() || key.requires_grad() || value.requires_grad());
  return static_cast<std::int64_t>(sdp_choice(asked, engine.profile(), sdp_switches()));
}

}  // namespace peakline::vgpu
