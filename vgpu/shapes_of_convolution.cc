// Shapes of cuDNN's convolutions.
#include <ATen/native/ConvUtils.h>

#include "vgpu/shape_builder.h"
#include "vgpu/shape_rule_sets.h"

namespace peakline::vgpu {
namespace {

at::MemoryFormat format_of(const at::Tensor& input, const at::Tensor& weight) {
  return at::native::cudnn_conv_suggest_memory_format(input, weight);
}

bool forward(const Call& call, ShapeBuilder& out) {
  const at::Tensor& input = call.args[0].toTensor();
  const at::Tensor& weight = call.args[1].toTensor();
  const auto padding = call.args[2].toIntVector();
  const auto stride = call.args[3].toIntVector();
  const auto dilation = call.args[4].toIntVector();
  const auto sizes =
      at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
  out.fresh(input.scalar_type(), sizes, format_of(input, weight));
  return true;
}

// The fused forms take stride before padding.
bool fused_forward(const Call& call, ShapeBuilder& out) {
  const bool adds = call.args.size() > 7;  // cudnn_convolution_add_relu(self, weight, z, alpha, …)
  const std::size_t at = adds ? 5 : 3;
  const at::Tensor& input = call.args[0].toTensor();
  const at::Tensor& weight = call.args[1].toTensor();
  const auto sizes =
      at::native::conv_output_size(input.sizes(), weight.sizes(), call.args[at + 1].toIntVector(),
                                   call.args[at].toIntVector(), call.args[at + 2].toIntVector());
  out.fresh(input.scalar_type(), sizes, format_of(input, weight));
  return true;
}

bool transposed(const Call& call, ShapeBuilder& out) {
  const at::Tensor& input = call.args[0].toTensor();
  const at::Tensor& weight = call.args[1].toTensor();
  const auto sizes = at::native::conv_input_size(
      input.sizes(), weight.sizes(), call.args[2].toIntVector(), call.args[3].toIntVector(),
      call.args[4].toIntVector(), call.args[5].toIntVector(), call.args[6].toInt());
  out.fresh(input.scalar_type(), sizes, format_of(input, weight));
  return true;
}

bool depthwise(const Call& call, ShapeBuilder& out) {
  const at::Tensor& input = call.args[0].toTensor();
  const at::Tensor& weight = call.args[1].toTensor();
  const bool flat = call.info.name.text.ends_with("2d");
  const auto sizes =
      at::native::conv_output_size(input.sizes(), weight.sizes(), call.args[5].toIntVector(),
                                   call.args[4].toIntVector(), call.args[6].toIntVector());
  out.fresh(input.scalar_type(), sizes,
            flat ? input.suggest_memory_format() : at::MemoryFormat::Contiguous);
  return true;
}

bool backward(const Call& call, ShapeBuilder& out) {
  const at::Tensor& grad = call.args[0].toTensor();
  const at::Tensor& input = call.args[1].toTensor();
  const at::Tensor& weight = call.args[2].toTensor();
  const auto mask = call.args[10].toBoolList();
  const at::MemoryFormat format = format_of(input, weight);
  if (mask[0])
    out.fresh(input.scalar_type(), input.sizes(), format);
  else
    out.undefined();
  if (mask[1])
    out.fresh(weight.scalar_type(), weight.sizes(), format);
  else
    out.undefined();
  if (mask[2])
    out.fresh(grad.scalar_type(), {grad.size(1)});
  else
    out.undefined();
  return true;
}

}  // namespace

void add_convolution_rules(RuleSet& rules) {
  rules["aten::cudnn_convolution"] = &forward;
  rules["aten::cudnn_convolution_relu"] = &fused_forward;
  rules["aten::cudnn_convolution_add_relu"] = &fused_forward;
  rules["aten::cudnn_convolution_transpose"] = &transposed;
  rules["aten::_conv_depthwise2d"] = &depthwise;
  rules["aten::conv_depthwise3d"] = &depthwise;
  rules["aten::convolution_backward"] = &backward;
}

}  // namespace peakline::vgpu
