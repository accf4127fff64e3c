// Shapes of normalisations as CUDA's kernels give them.
#include <ATen/ATen.h>

#include "vgpu/shape_builder.h"
#include "vgpu/shape_rule_sets.h"

namespace peakline::vgpu {
namespace {

at::ScalarType accumulated(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
}

bool given(const c10::IValue& value) { return value.isTensor() && value.toTensor().defined(); }

// The sizes of the statistics: one for each row that is normalised.
Dims statistics(const at::Tensor& input, std::size_t normalized) {
  Dims sizes(input.sizes().begin(), input.sizes().end());
  for (std::size_t i = sizes.size() - normalized; i < sizes.size(); ++i) sizes[i] = 1;
  return sizes;
}

bool layer_norm(const Call& call, ShapeBuilder& out) {
  const at::Tensor& input = call.args[0].toTensor();
  const std::size_t normalized = call.args[1].toListRef().size();
  if (normalized > static_cast<std::size_t>(input.dim())) return false;
  const Dims rows = statistics(input, normalized);
  const at::ScalarType wide = accumulated(input.scalar_type());
  out.fresh(input.scalar_type(), input.sizes());
  out.fresh(wide, rows);
  out.fresh(wide, rows);
  return true;
}

bool layer_norm_backward(const Call& call, ShapeBuilder& out) {
  const at::Tensor& input = call.args[1].toTensor();
  const auto mask = call.args[7].toBoolList();
  if (mask[0])
    out.fresh(input.scalar_type(), input.sizes());
  else
    out.undefined();
  for (const std::size_t which : {1U, 2U}) {
    const c10::IValue& parameter = call.args[4 + which];
    if (mask[which] && given(parameter)) {
      out.fresh(parameter.toTensor().scalar_type(), parameter.toTensor().sizes());
    } else {
      out.undefined();
    }
  }
  return true;
}

bool rms_norm(const Call& call, ShapeBuilder& out) {
  const at::Tensor& input = call.args[0].toTensor();
  const std::size_t normalized = call.args[1].toListRef().size();
  if (normalized > static_cast<std::size_t>(input.dim())) return false;
  out.fresh(input.scalar_type(), input.sizes());
  out.fresh(accumulated(input.scalar_type()), statistics(input, normalized));
  return true;
}

bool rms_norm_backward(const Call& call, ShapeBuilder& out) {
  const at::Tensor& input = call.args[1].toTensor();
  const auto mask = call.args[5].toBoolList();
  if (mask[0])
    out.fresh(input.scalar_type(), input.sizes());
  else
    out.undefined();
  if (mask[1] && given(call.args[4])) {
    out.fresh(call.args[4].toTensor().scalar_type(), call.args[4].toTensor().sizes());
  } else {
    out.undefined();
  }
  return true;
}

bool group_norm(const Call& call, ShapeBuilder& out) {
  const at::Tensor& input = call.args[0].toTensor();
  const Dims groups{call.args[3].toInt(), call.args[6].toInt()};
  const at::ScalarType statistics_type =
      given(call.args[1]) && call.args[1].toTensor().scalar_type() != input.scalar_type()
          ? call.args[1].toTensor().scalar_type()
          : input.scalar_type();
  out.fresh(input.scalar_type(), input.sizes(), input.suggest_memory_format());
  out.fresh(statistics_type, groups);
  out.fresh(statistics_type, groups);
  return true;
}

bool group_norm_backward(const Call& call, ShapeBuilder& out) {
  const at::Tensor& input = call.args[1].toTensor();
  const auto mask = call.args[9].toBoolList();
  if (mask[0])
    out.fresh(input.scalar_type(), input.sizes(), input.suggest_memory_format());
  else
    out.undefined();
  for (const std::size_t which : {1, 2}) {
    if (mask[which] && given(call.args[4])) {
      out.fresh(call.args[4].toTensor().scalar_type(), {call.args[6].toInt()});
    } else {
      out.undefined();
    }
  }
  return true;
}

bool cudnn_batch_norm(const Call& call, ShapeBuilder& out) {
  const at::Tensor& input = call.args[0].toTensor();
  const at::Tensor& weight = call.args[1].toTensor();
  const bool training = call.args[5].toBool();
  out.fresh(input.scalar_type(), input.sizes(), input.suggest_memory_format());
  const std::int64_t channels = training ? weight.size(0) : 0;
  out.fresh(weight.scalar_type(), {channels});
  out.fresh(weight.scalar_type(), {channels});
  out.fresh(at::kByte, {0});
  return true;
}

bool cudnn_batch_norm_backward(const Call& call, ShapeBuilder& out) {
  const at::Tensor& input = call.args[0].toTensor();
  const at::Tensor& weight = call.args[2].toTensor();
  out.fresh(input.scalar_type(), input.sizes(), input.suggest_memory_format());
  out.fresh(weight.scalar_type(), weight.sizes());
  out.fresh(weight.scalar_type(), weight.sizes());
  return true;
}

}  // namespace

void add_norm_rules(RuleSet& rules) {
  rules["aten::native_layer_norm"] = &layer_norm;
  rules["aten::native_layer_norm_backward"] = &layer_norm_backward;
  rules["aten::_fused_rms_norm"] = &rms_norm;
  rules["aten::_fused_rms_norm_backward"] = &rms_norm_backward;
  rules["aten::native_group_norm"] = &group_norm;
  rules["aten::native_group_norm_backward"] = &group_norm_backward;
  rules["aten::cudnn_batch_norm"] = &cudnn_batch_norm;
  rules["aten::cudnn_batch_norm_backward"] = &cudnn_batch_norm_backward;
}

}  // namespace peakline::vgpu
