// Convolutions. Sources: aten/src/ATen/native/Convolution.cpp (convolution_backward),
// aten/src/ATen/native/cudnn/ConvShared.cpp, Conv_v8.cpp, cuda/DepthwiseConv2d.cu,
// cuda/ConvolutionMM2d.cu, NaiveDilatedConvolution.cu, NaiveConvolutionTranspose2d.cu.
#include <algorithm>
#include <tuple>

#include <peakline/conv_planner.h>

#include "kernels/blas.h"
#include "kernels/cudnn_conv.h"
#include "kernels/memory_format.h"
#include "kernels/reduce_config.h"
#include "kernels/rule_tables.h"
#include "kernels/tail_split.h"

namespace peakline::kernels {
namespace {

std::int64_t pixels(const std::vector<std::int64_t>& sizes) {
  std::int64_t count = 1;
  for (std::size_t i = 2; i < sizes.size(); ++i) count *= sizes[i];
  return count;
}

// A convolution with its tensors, as both directions see it.
struct Pictures {
  const Convolution& c;
  const TensorMeta& input;
  const TensorMeta& weight;
  const std::vector<std::int64_t>& output_sizes;
};

bool any_above_one(const std::vector<std::int64_t>& values) {
  return std::any_of(values.begin(), values.end(), [](std::int64_t v) { return v > 1; });
}

// Nothing when these are not the tensors of a convolution.
std::optional<Pictures> pictures(const RuleContext& op, const TensorMeta& input,
                                 const TensorMeta& weight, const TensorMeta& output) {
  const std::size_t dimensions = input.sizes.size();
  const bool valid = op.call.convolution && dimensions >= 3 && weight.sizes.size() == dimensions &&
                     output.sizes.size() == dimensions && input.strides.size() == dimensions;
  if (!valid) return std::nullopt;
  const Convolution& c = *op.call.convolution;
  for (const auto* setting : {&c.stride, &c.padding, &c.dilation}) {
    if (setting->size() != dimensions - 2) return std::nullopt;
  }
  return Pictures{c, input, weight, output.sizes};
}

ConvProblem problem_of(const Pictures& p) {
  const Convolution& c = p.c;
  ConvProblem problem;
  problem.dtype = p.input.dtype;
  problem.channels_last = c.channels_last;
  problem.batch = p.input.sizes[0];
  problem.in_channels = p.input.sizes[1];
  problem.out_channels = p.output_sizes[1];
  problem.groups = std::max<std::int64_t>(c.groups, 1);
  problem.in_pixels = pixels(p.input.sizes);
  problem.out_pixels = pixels(p.output_sizes);
  problem.kernel_pixels = pixels(p.weight.sizes);
  problem.stride = c.stride[0];
  problem.patches = c.stride[0] > 1 && c.stride[0] == p.weight.sizes.back();
  problem.unusual =
      c.transposed || any_above_one(c.dilation) || p.input.sizes.size() > 4 || c.benchmark;
  // A transposed convolution is the gradient of a plain one, with the two sides exchanged.
  if (c.transposed) {
    std::swap(problem.in_channels, problem.out_channels);
    std::swap(problem.in_pixels, problem.out_pixels);
  }
  return problem;
}

// cuDNN is given lines as pictures of one row.
void add_row(ConvQuery& query) {
  for (auto* sizes : {&query.input, &query.weight, &query.output}) {
    sizes->insert(sizes->begin() + 2, 1);
  }
  query.padding.insert(query.padding.begin(), 0);
  query.stride.insert(query.stride.begin(), 1);
  query.dilation.insert(query.dilation.begin(), 1);
}

ConvQuery query_of(const Pictures& p, ConvPass pass) {
  const Convolution& c = p.c;
  ConvQuery query;
  query.pass = pass;
  query.dtype = p.input.dtype;
  query.channels_last = c.channels_last;
  query.deterministic = c.deterministic;
  query.allow_tf32 = c.allow_tf32;
  query.input = c.transposed ? p.output_sizes : p.input.sizes;
  query.weight = p.weight.sizes;
  query.output = c.transposed ? p.input.sizes : p.output_sizes;
  query.padding = c.padding;
  query.stride = c.stride;
  query.dilation = c.dilation;
  if (query.input.size() == 3) add_row(query);
  return query;
}

// cuDNN's kernels for these say that they need a device to be planned.
bool cannot_be_planned(const ConvProblem& p, ConvPass pass) {
  return p.depthwise() && p.half() && pass == ConvPass::kWeightGradient;
}

// A weight's gradient that is one product over all pixels: cuBLASLt splits the sum, and asking cuDNN
// does not tell how.
bool one_product(const ConvProblem& p, const ConvPlan& plan) {
  return p.channels_last && p.kernel_pixels == 1 && p.stride == 1 && p.groups == 1 &&
         plan.workspace == 0 && plan.knobs.size() == 1 && plan.knobs.contains("WORKSPACE");
}

// What cuDNN says is exact for the versions that were measured.
Certainty certainty_of_plan(const RuleContext& op, const Pictures& p, bool split_is_modelled) {
  if (p.c.benchmark) return Certainty::kGuessed;
  const bool measured = op.gpu.measured_with_cudnn(op.state.conv_planner->status().version);
  return split_is_modelled || !measured ? Certainty::kModelled : Certainty::kExact;
}

std::optional<ConvWorkspace> planned(const RuleContext& op, const Pictures& p,
                                     const ConvProblem& problem, ConvPass pass) {
  if (op.state.conv_planner == nullptr || cannot_be_planned(problem, pass)) return std::nullopt;
  const ConvQuery query = query_of(p, pass);
  const auto plan = op.state.conv_planner->plan(query);
  if (!plan) return std::nullopt;
  if (pass == ConvPass::kWeightGradient && one_product(problem, *plan)) {
    const bool plenty = plan->knobs.at("WORKSPACE") > 1;
    return ConvWorkspace{split_product(problem, plenty, op.gpu), Certainty::kGuessed};
  }
  const PlannedWorkspace found = planned_workspace(query, *plan, op.gpu);
  return ConvWorkspace{found.bytes, certainty_of_plan(op, p, !found.exact)};
}

void run_cudnn(RuleContext& op, const Pictures& p, ConvPass pass) {
  const ConvProblem problem = problem_of(p);
  const ConvWorkspace workspace =
      planned(op, p, problem, pass).value_or(cudnn_conv_workspace(problem, pass, op.gpu));
  op.program.flash(workspace.bytes, workspace.certainty);
}

std::int64_t groups_of(const Pictures& p) { return std::max<std::int64_t>(p.c.groups, 1); }

// The windows of one picture side by side, of one group: also where the picture itself is that.
std::int64_t column_bytes(const Pictures& p) {
  const std::int64_t channels =
      (p.c.transposed ? p.output_sizes[1] : p.input.sizes[1]) / groups_of(p);
  const std::int64_t windows = pixels(p.c.transposed ? p.input.sizes : p.output_sizes);
  return channels * pixels(p.weight.sizes) * windows * size_of(p.input.dtype);
}

// A plain convolution reads the picture itself where its windows are single pixels, one at a time.
bool picture_is_columns(const RuleContext& op, const Pictures& p) {
  const auto all = [](const std::vector<std::int64_t>& values, std::int64_t value) {
    return std::all_of(values.begin(), values.end(), [=](std::int64_t v) { return v == value; });
  };
  return op.call.name == "aten::_slow_conv2d_forward" && pixels(p.weight.sizes) == 1 &&
         all(p.c.stride, 1) && all(p.c.padding, 0);
}

// cudnn_convolution, its transposed and fused forms
void cudnn_forward(RuleContext& op) {
  op.program.outputs();
  const auto p = pictures(op, op.args.tensor(0), op.args.tensor(1), op.args.out(0));
  if (!p) return;
  const Scratch dense_weight(op.program, copy_to(p->weight, p->c.channels_last));
  const Scratch dense_input(op.program, copy_to(p->input, p->c.channels_last));
  run_cudnn(op, *p, p->c.transposed ? ConvPass::kInputGradient : ConvPass::kForward);
}

// _slow_conv2d_forward, slow_conv_dilated2d, slow_conv_transpose2d, ...
void columns_forward(RuleContext& op) {
  op.program.outputs();
  const auto p = pictures(op, op.args.tensor(0), op.args.tensor(1), op.args.out(0));
  if (!p) return;
  const Scratch dense_input(op.program, copy_to(p->input, false));
  const Scratch dense_weight(op.program, copy_to(p->weight, false));
  const Scratch columns(op.program, picture_is_columns(op, *p) ? 0 : column_bytes(*p));
  // A transposed one adds its bias by a product with as many ones as a picture has pixels.
  const bool ones = p->c.transposed && op.args.tensor(3).defined;
  op.program.flash(ones ? pixels(p->output_sizes) * size_of(p->input.dtype) : 0);
  use_cublas(op);
}

// _conv_depthwise2d, conv_depthwise3d
void depthwise_forward(RuleContext& op) { op.program.outputs(); }

// The sum over everything but the channels.
void sum_channels(RuleContext& op, const TensorMeta& gradient, std::int64_t channel_dim = 1) {
  Reduction r;
  r.input = gradient;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(gradient.sizes.size()); ++i) {
    if (i != channel_dim) r.dims.push_back(i);
  }
  r.accumulator_size = size_of(accumulate_type(gradient.dtype));
  r.output_size = size_of(gradient.dtype);
  r.accumulates_in_output = !is_reduced_float(gradient.dtype);
  reduce(op.program, r, op.gpu);
}

struct Wanted {
  bool input;
  bool weight;
  bool bias;
};

// Where both are in channels last, or one, cuDNN works so (cudnn_conv_suggest_memory_format).
bool work_channels_last(const TensorMeta& one, const TensorMeta& other) {
  return one.dtype != DType::kFloat64 &&
         (suggests_channels_last(one) || suggests_channels_last(other));
}

void cudnn_input_gradient(RuleContext& op, const Pictures& p, const TensorMeta& gradient) {
  const bool channels_last = work_channels_last(gradient, p.weight);
  op.program.output(0);
  const Scratch dense_weight(op.program, copy_to(p.weight, channels_last));
  const Scratch dense_gradient(op.program, copy_to(gradient, channels_last));
  run_cudnn(op, p, p.c.transposed ? ConvPass::kForward : ConvPass::kInputGradient);
}

void cudnn_weight_gradient(RuleContext& op, const Pictures& p, const TensorMeta& input,
                           const TensorMeta& gradient) {
  const bool channels_last = work_channels_last(input, gradient);
  const auto& [first, second] = p.c.transposed ? std::tie(input, gradient)  // the sides change
                                               : std::tie(gradient, input);
  const Scratch dense_first(op.program, copy_to(first, channels_last));
  const Scratch dense_second(op.program, copy_to(second, channels_last));
  op.program.output(1);
  run_cudnn(op, p, ConvPass::kWeightGradient);
}

// For the weight's gradient torch copies the input before anything else. Then the gradient gets the
// input's format, if it has another: it may still be one that is not dense (expanded, a slice), and is
// copied by each pass then.
void cudnn_backward(RuleContext& op, const Pictures& p, TensorMeta gradient, Wanted wanted) {
  TensorMeta input = p.input;
  const Scratch dense_input(op.program, wanted.weight ? copy_to(input, p.c.channels_last) : 0);
  if (wanted.weight) input.strides = dense_strides(input.sizes, p.c.channels_last);
  const bool format = suggests_channels_last(input);
  const bool has_format =
      p.c.transposed ? copy_to(gradient, format) == 0 : suggests_channels_last(gradient) == format;
  const Scratch formatted(op.program, has_format ? 0 : gradient.bytes().raw());
  if (!has_format) gradient.strides = dense_strides(gradient.sizes, format);
  if (wanted.input) cudnn_input_gradient(op, p, gradient);
  if (wanted.weight) cudnn_weight_gradient(op, p, input, gradient);
}

void depthwise_backward(RuleContext& op, const Pictures& p, const TensorMeta& gradient,
                        Wanted wanted) {
  const Scratch dense_gradient(op.program, copy_to(gradient, p.c.channels_last));
  if (wanted.weight) op.program.output(1);
  if (wanted.input) op.program.output(0);
}

// grad_bias += grad_output[i].sum(), picture by picture.
void sum_picture(RuleContext& op, TensorMeta gradient) {
  gradient.sizes.erase(gradient.sizes.begin());
  gradient.strides.erase(gradient.strides.begin());
  const Scratch sum(op.program, gradient.sizes[0] * size_of(gradient.dtype));
  sum_channels(op, gradient, 0);
}

// The gradients of one group. `take(i)` makes room for that of input, weight or bias; the columns stay
// until all are there.
template <class Take>
void gradients_by_columns(RuleContext& op, const Pictures& p, const TensorMeta& gradient,
                          Wanted wanted, Take take) {
  const bool any_columns = wanted.input || wanted.weight;
  const bool dilated = !p.c.transposed && (any_above_one(p.c.dilation) || p.input.sizes.size() > 4);
  if (wanted.input) take(0);
  if (dilated && wanted.weight) take(1);
  if (dilated && wanted.bias) take(2);
  const Scratch columns(op.program, any_columns ? column_bytes(p) : 0);
  if (any_columns) use_cublas(op);
  if (dilated) {
    if (wanted.bias) sum_picture(op, gradient);
    return;
  }
  if (p.c.transposed && wanted.weight) take(1);
  if (wanted.bias) {
    take(2);
    sum_channels(op, gradient);
  }
  if (!p.c.transposed && wanted.weight) take(1);
}

// A dense tensor's part of its channels; torch copies it out unless there is one picture only.
struct ChannelPart {
  TensorMeta part;
  std::int64_t copied;  // bytes
};
ChannelPart channel_part(const TensorMeta& tensor, std::int64_t groups) {
  TensorMeta part = tensor;
  part.sizes[1] /= groups;
  part.strides = dense_strides(part.sizes, false);
  return {part, tensor.sizes[0] > 1 ? part.bytes().raw() : 0};
}

// Each group makes gradients of its own, which are put together at the end.
void columns_in_groups(RuleContext& op, const Pictures& p, const TensorMeta& gradient,
                       Wanted wanted) {
  const std::int64_t groups = groups_of(p);
  const ChannelPart gradient_part = channel_part(gradient, groups);
  const std::int64_t input_copy = channel_part(p.input, groups).copied;
  std::vector<int> parts;
  for (std::int64_t group = 0; group < groups; ++group) {
    const Scratch own_gradient(op.program, gradient_part.copied);
    const Scratch own_input(op.program, input_copy);
    gradients_by_columns(op, p, gradient_part.part, wanted, [&](std::size_t which) {
      parts.push_back(op.program.alloc(op.args.out(which).bytes().raw() / groups));
    });
  }
  if (wanted.input) op.program.output(0);
  if (wanted.weight) op.program.output(1);
  if (wanted.bias) op.program.output(2);
  for (const int part : parts) op.program.free(part);
}

void columns_backward(RuleContext& op, const Pictures& p, TensorMeta gradient, Wanted wanted) {
  const Scratch dense_gradient(op.program, copy_to(gradient, p.c.channels_last));
  gradient.strides = dense_strides(gradient.sizes, p.c.channels_last);
  const Scratch dense_input(op.program, copy_to(p.input, false));
  const Scratch dense_weight(op.program, copy_to(p.weight, false));
  if (groups_of(p) > 1) return columns_in_groups(op, p, gradient, wanted);
  gradients_by_columns(op, p, gradient, wanted,
                       [&](std::size_t which) { op.program.output(which); });
}

// convolution_backward(gradient, input, weight, bias_sizes, stride, padding, dilation, transposed,
//                      output_padding, groups, output_mask)
void backward(RuleContext& op) {
  const TensorMeta& gradient = op.args.tensor(0);
  const auto p = pictures(op, op.args.tensor(1), op.args.tensor(2), gradient);
  if (!p || op.args.outs() < 3) return;
  const Wanted wanted{op.args.mask(10, 0), op.args.mask(10, 1), op.args.mask(10, 2)};
  switch (p->c.backend) {
    case Convolution::Backend::kDepthwise:
      depthwise_backward(op, *p, gradient, wanted);
      break;
    case Convolution::Backend::kColumns:
      return columns_backward(op, *p, gradient, wanted);
    case Convolution::Backend::kCudnn:
      cudnn_backward(op, *p, gradient, wanted);
      break;
  }
  if (!wanted.bias) return;
  // Of the gradient as it came: copies are gone by now.
  op.program.output(2);
  sum_channels(op, gradient);
}

constexpr NamedRule kRules[] = {
    {"aten::cudnn_convolution", cudnn_forward},
    {"aten::cudnn_convolution_relu", cudnn_forward},
    {"aten::cudnn_convolution_add_relu", cudnn_forward},
    {"aten::cudnn_convolution_transpose", cudnn_forward},
    {"aten::_conv_depthwise2d", depthwise_forward},
    {"aten::conv_depthwise3d", depthwise_forward},
    {"aten::_slow_conv2d_forward", columns_forward},
    {"aten::slow_conv_dilated2d", columns_forward},
    {"aten::slow_conv_dilated3d", columns_forward},
    {"aten::slow_conv_transpose2d", columns_forward},
    {"aten::slow_conv_transpose3d", columns_forward},
    {"aten::convolution_backward", backward},
};

}  // namespace

std::span<const NamedRule> convolution_rules() { return kRules; }

}  // namespace peakline::kernels
