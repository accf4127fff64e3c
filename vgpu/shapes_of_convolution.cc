// Shapes of convolutions: sizes as torch computes them, in the layout of whoever computes.
#include <ATen/native/ConvUtils.h>

#include "vgpu/convolution_call.h"
#include "vgpu/op_call.h"
#include "vgpu/shape_builder.h"
#include "vgpu/shape_rule_sets.h"

namespace peakline::vgpu {
namespace {

at::MemoryFormat format_of(const Convolution& c, const at::Tensor& pictures) {
  if (!c.channels_last) return at::MemoryFormat::Contiguous;
  return pictures.dim() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
}

std::vector<std::int64_t> output_sizes(const Call& call, const Convolution& c) {
  const at::Tensor& input = call.args[0].toTensor();
  const at::Tensor& weight = call.args[1].toTensor();
  if (!c.transposed) {
    return at::native::conv_output_size(input.sizes(), weight.sizes(), c.padding, c.stride,
                                        c.dilation);
  }
  return at::native::conv_input_size(input.sizes(), weight.sizes(), c.padding,
                                     output_padding_of(call), c.stride, c.dilation, c.groups);
}

bool forward(const Call& call, ShapeBuilder& out) {
  if (call.info.only_written != 0) return false;  // out=
  const auto c = convolution_of(call, kernel_switches());
  if (!c) return false;
  const at::Tensor& input = call.args[0].toTensor();
  out.fresh(input.scalar_type(), output_sizes(call, *c), format_of(*c, input));
  return true;
}

bool backward(const Call& call, ShapeBuilder& out) {
  const auto c = convolution_of(call, kernel_switches());
  if (!c) return false;
  const at::Tensor& grad = call.args[0].toTensor();
  const auto mask = call.args[10].toBoolList();
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
    const at::Tensor& like = call.args[i + 1].toTensor();
    if (mask[i])
      out.fresh(like.scalar_type(), like.sizes(), format_of(*c, like));
    else
      out.undefined();
  }
  if (mask[2])
    out.fresh(grad.scalar_type(), {grad.size(1)});
  else
    out.undefined();
  return true;
}

}  // namespace

void add_convolution_rules(RuleSet& rules) {
  rules["aten::cudnn_convolution"] = &forward;
  rules["aten::cudnn_convolution_relu"] = &forward;
  rules["aten::cudnn_convolution_add_relu"] = &forward;
  rules["aten::cudnn_convolution_transpose"] = &forward;
  rules["aten::_conv_depthwise2d"] = &forward;
  rules["aten::conv_depthwise3d"] = &forward;
  rules["aten::_slow_conv2d_forward"] = &forward;
  rules["aten::slow_conv_dilated2d"] = &forward;
  rules["aten::slow_conv_dilated3d"] = &forward;
  rules["aten::slow_conv_transpose3d"] = &forward;
  rules["aten::convolution_backward"] = &backward;
}

}  // namespace peakline::vgpu
