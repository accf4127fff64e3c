#include "vgpu/convolution_call.h"

#include <ATen/native/ConvUtils.h>

#include <array>
#include <string_view>

namespace peakline::vgpu {
namespace {

using Backend = Convolution::Backend;

// Where an op keeps its settings among its arguments; -1: it has none.
struct Form {
  std::string_view name;
  Backend backend;  // unless torch is asked, for each call
  int stride;
  int padding;
  int dilation;
  int groups;
  int switches;  // benchmark, deterministic, allow_tf32, one behind the other; -1: the process' own
  int output_padding;  // of transposed ones
};

constexpr std::string_view kBackward = "aten::convolution_backward";

constexpr auto kForms = std::to_array<Form>({
    {"aten::cudnn_convolution", Backend::kCudnn, 3, 2, 4, 5, 6, -1},
    {"aten::cudnn_convolution_relu", Backend::kCudnn, 3, 4, 5, 6, -1, -1},
    {"aten::cudnn_convolution_add_relu", Backend::kCudnn, 5, 6, 7, 8, -1, -1},
    {"aten::cudnn_convolution_transpose", Backend::kCudnn, 4, 2, 5, 6, 7, 3},
    {"aten::_conv_depthwise2d", Backend::kDepthwise, 4, 5, 6, -1, -1, -1},
    {"aten::conv_depthwise3d", Backend::kDepthwise, 4, 5, 6, -1, -1, -1},
    {"aten::_slow_conv2d_forward", Backend::kColumns, 4, 5, -1, -1, -1, -1},
    {"aten::slow_conv_dilated2d", Backend::kColumns, 4, 5, 6, -1, -1, -1},
    {"aten::slow_conv_dilated3d", Backend::kColumns, 4, 5, 6, -1, -1, -1},
    {"aten::slow_conv_transpose2d", Backend::kColumns, 4, 5, 7, -1, -1, 6},
    {"aten::slow_conv_transpose3d", Backend::kColumns, 4, 5, 7, -1, -1, 6},
    {kBackward, Backend::kCudnn, 4, 5, 6, 9, -1, 8},
});

const Form* form_of(const Call& call) {
  for (const Form& form : kForms) {
    if (form.name == call.info.name.text) return &form;
  }
  return nullptr;
}

// One number may stand for all dimensions.
std::vector<std::int64_t> setting(const Call& call, int at, std::size_t dimensions,
                                  std::int64_t otherwise) {
  std::vector<std::int64_t> values;
  if (at >= 0) values = call.args[static_cast<std::size_t>(at)].toIntVector();
  if (values.empty()) values.push_back(otherwise);
  if (values.size() < dimensions) values.resize(dimensions, values[0]);
  return values;
}

c10::SymIntArrayRef symbolic(const std::vector<std::int64_t>& values) {
  return c10::fromIntArrayRefSlow(values);
}

// What torch's own function says: the one that its convolution_backward asks.
at::native::ConvBackend choose(const Call& call, const Convolution& c) {
  const std::vector<std::int64_t> output_padding = output_padding_of(call);
  return at::native::select_conv_backend(
      call.args[1].toTensor(), call.args[2].toTensor(), std::nullopt, symbolic(c.stride),
      symbolic(c.padding), symbolic(c.dilation), c.transposed, symbolic(output_padding),
      c10::SymInt(c.groups), std::nullopt);
}

Backend backend_of(at::native::ConvBackend chosen) {
  switch (chosen) {
    case at::native::ConvBackend::Cudnn:
    case at::native::ConvBackend::CudnnTranspose:
      return Backend::kCudnn;
    case at::native::ConvBackend::CudaDepthwise2d:
    case at::native::ConvBackend::CudaDepthwise3d:
      return Backend::kDepthwise;
    default:
      return Backend::kColumns;
  }
}

bool suggests_channels_last(const at::Tensor& input, const at::Tensor& weight) {
  return at::native::cudnn_conv_suggest_memory_format(input, weight) !=
         at::MemoryFormat::Contiguous;
}

// torch's own kernels for pictures keep the input's layout, those for volumes make it contiguous.
bool works_channels_last(const Form& form, Backend backend, const at::Tensor& input,
                         const at::Tensor& weight) {
  if (backend == Backend::kCudnn) return suggests_channels_last(input, weight);
  return form.name == "aten::_conv_depthwise2d" &&
         input.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
}

void read_switches(const Call& call, const Form& form, const KernelSwitches& switches,
                   Convolution& c) {
  if (form.switches < 0) {
    c.benchmark = switches.cudnn_benchmark;
    c.deterministic = switches.cudnn_deterministic || switches.deterministic_algorithms;
    c.allow_tf32 = switches.cudnn_allow_tf32;
    return;
  }
  const auto at = static_cast<std::size_t>(form.switches);
  c.benchmark = call.args[at].toBool();
  c.deterministic = call.args[at + 1].toBool();
  c.allow_tf32 = call.args[at + 2].toBool();
}

}  // namespace

std::optional<Convolution> convolution_of(const Call& call, const KernelSwitches& switches) {
  const Form* form = form_of(call);
  if (form == nullptr) return std::nullopt;
  const bool backward = form->name == kBackward;
  const at::Tensor& input = call.args[backward ? 1 : 0].toTensor();
  const at::Tensor& weight = call.args[backward ? 2 : 1].toTensor();
  const auto dimensions = static_cast<std::size_t>(std::max<std::int64_t>(input.dim() - 2, 1));
  Convolution c;
  c.stride = setting(call, form->stride, dimensions, 1);
  c.padding = setting(call, form->padding, dimensions, 0);
  c.dilation = setting(call, form->dilation, dimensions, 1);
  if (form->groups >= 0) c.groups = call.args[static_cast<std::size_t>(form->groups)].toInt();
  c.transposed = backward ? call.args[7].toBool() : form->output_padding >= 0;
  c.backend = backward ? backend_of(choose(call, c)) : form->backend;
  c.channels_last = works_channels_last(*form, c.backend, input, weight);
  read_switches(call, *form, switches, c);
  return c;
}

std::vector<std::int64_t> output_padding_of(const Call& call) {
  const Form* form = form_of(call);
  if (form == nullptr) return {};
  const std::size_t at = form->name == kBackward ? 1 : 0;
  const auto dimensions =
      static_cast<std::size_t>(std::max<std::int64_t>(call.args[at].toTensor().dim() - 2, 1));
  return setting(call, form->output_padding, dimensions, 0);
}

}  // namespace peakline::vgpu
