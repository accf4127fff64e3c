// Convolutions. Sources: aten/src/ATen/native/Convolution.cpp (select_conv_backend),
// aten/src/ATen/native/cudnn/ConvShared.cpp, Conv_v8.cpp, cuda/DepthwiseConv2d.cu.
#include <algorithm>

#include <peakline/conv_planner.h>

#include "kernels/cudnn_conv.h"
#include "kernels/memory_format.h"
#include "kernels/reduce_config.h"
#include "kernels/rule_tables.h"
#include "kernels/tail_split.h"

namespace peakline::kernels {
namespace {

std::int64_t pixels(const TensorMeta& t) {
  std::int64_t count = 1;
  for (std::size_t i = 2; i < t.sizes.size(); ++i) count *= t.sizes[i];
  return count;
}

// What both directions know about a convolution.
struct Convolution {
  TensorMeta input;
  TensorMeta weight;
  std::vector<std::int64_t> output_sizes;
  std::int64_t groups = 1;
  std::vector<std::int64_t> stride;
  std::vector<std::int64_t> padding;
  std::vector<std::int64_t> dilation;
  bool transposed = false;
  bool channels_last = false;

  [[nodiscard]] bool depthwise() const {
    return !transposed && input.sizes.size() >= 4 && groups > 1 && input.sizes[1] == groups &&
           weight.sizes[0] % input.sizes[1] == 0;
  }
};

bool valid(const TensorMeta& input, const TensorMeta& weight) {
  return input.sizes.size() >= 3 && weight.sizes.size() == input.sizes.size() &&
         input.strides.size() == input.sizes.size();
}

bool any_above_one(const std::vector<std::int64_t>& values) {
  return std::any_of(values.begin(), values.end(), [](std::int64_t v) { return v > 1; });
}

// One number may stand for all dimensions.
std::vector<std::int64_t> for_all(std::vector<std::int64_t> values, std::size_t dimensions,
                                  std::int64_t otherwise) {
  if (values.empty()) values.push_back(otherwise);
  if (values.size() < dimensions) values.resize(dimensions, values[0]);
  return values;
}

// Where an op keeps its settings among its arguments.
struct Places {
  std::size_t stride;
  std::size_t padding;
  std::size_t dilation;
  std::size_t groups;
};

Convolution make(const TensorMeta& input, const TensorMeta& weight, const OpArgs& args,
                 const Places& places) {
  Convolution c;
  c.input = input;
  c.weight = weight;
  c.groups = std::max<std::int64_t>(1, args.integer(places.groups, 1));
  const std::size_t dimensions = input.sizes.size() - 2;
  c.stride = for_all(args.integers(places.stride), dimensions, 1);
  c.padding = for_all(args.integers(places.padding), dimensions, 0);
  c.dilation = for_all(args.integers(places.dilation), dimensions, 1);
  c.channels_last = input.dtype != DType::kFloat64 &&
                    (suggests_channels_last(input) || suggests_channels_last(weight));
  return c;
}

// Depthwise convolutions have kernels of torch's own, unless the data is channels-last or cuDNN's
// half-precision ones pay off.
bool own_depthwise(const Convolution& c, const KernelState& state) {
  return c.depthwise() && (!state.cudnn_enabled || !c.channels_last);
}

ConvProblem problem_of(const Convolution& c, const KernelState& state) {
  ConvProblem p;
  p.dtype = c.input.dtype;
  p.channels_last = c.channels_last;
  p.batch = c.input.sizes[0];
  p.in_channels = c.input.sizes[1];
  p.out_channels = c.output_sizes[1];
  p.groups = c.groups;
  p.in_pixels = pixels(c.input);
  p.out_pixels = 1;
  for (std::size_t i = 2; i < c.output_sizes.size(); ++i) p.out_pixels *= c.output_sizes[i];
  p.kernel_pixels = pixels(c.weight);
  p.stride = c.stride[0];
  p.patches = c.stride[0] > 1 && c.stride[0] == c.weight.sizes.back();
  p.unusual = c.transposed || any_above_one(c.dilation) || c.input.sizes.size() > 4 ||
              state.cudnn_benchmark;
  // A transposed convolution is the gradient of a plain one, with the two sides exchanged.
  if (c.transposed) {
    std::swap(p.in_channels, p.out_channels);
    std::swap(p.in_pixels, p.out_pixels);
  }
  return p;
}

// The result has cuDNN's layout, whatever torch's shape function says.
void fix_layout(RuleContext& op, bool channels_last) {
  TensorMeta changed = op.args.out(0);
  changed.strides = dense_strides(changed.sizes, channels_last);
  if (changed.strides != op.args.out(0).strides) op.program.change_output(0, changed);
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

ConvQuery query_of(const Convolution& c, ConvPass pass, const KernelState& state) {
  ConvQuery query;
  query.pass = pass;
  query.dtype = c.input.dtype;
  query.channels_last = c.channels_last;
  query.deterministic = state.cudnn_deterministic || state.deterministic_algorithms;
  query.allow_tf32 = state.cudnn_allow_tf32;
  query.input = c.transposed ? c.output_sizes : c.input.sizes;
  query.weight = c.weight.sizes;
  query.output = c.transposed ? c.input.sizes : c.output_sizes;
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

std::optional<ConvWorkspace> planned(const RuleContext& op, const Convolution& c,
                                     const ConvProblem& p, ConvPass pass) {
  if (op.state.conv_planner == nullptr || !op.state.cudnn_enabled) return std::nullopt;
  if (cannot_be_planned(p, pass)) return std::nullopt;
  const ConvQuery query = query_of(c, pass, op.state);
  const auto plan = op.state.conv_planner->plan(query);
  if (!plan) return std::nullopt;
  if (pass == ConvPass::kWeightGradient && one_product(p, *plan)) {
    const bool plenty = plan->knobs.at("WORKSPACE") > 1;
    return ConvWorkspace{split_product(p, plenty, op.gpu), Certainty::kGuessed};
  }
  const PlannedWorkspace found = planned_workspace(query, *plan, op.gpu);
  return ConvWorkspace{found.bytes, op.state.cudnn_benchmark ? Certainty::kGuessed
                                    : found.exact            ? Certainty::kExact
                                                             : Certainty::kModelled};
}

void run_cudnn(RuleContext& op, const Convolution& c, ConvPass pass) {
  const ConvProblem problem = problem_of(c, op.state);
  const ConvWorkspace workspace =
      planned(op, c, problem, pass).value_or(cudnn_conv_workspace(problem, pass, op.gpu));
  op.program.flash(workspace.bytes, workspace.certainty);
}

void run_forward(RuleContext& op, const Places& places, bool transposed) {
  const TensorMeta& input = op.args.tensor(0);
  const TensorMeta& weight = op.args.tensor(1);
  if (!valid(input, weight) || op.args.outs() == 0) return;
  Convolution c = make(input, weight, op.args, places);
  c.transposed = transposed;
  c.output_sizes = op.args.out(0).sizes;
  if (c.output_sizes.size() != input.sizes.size()) return;
  fix_layout(op, c.channels_last);
  op.program.outputs();
  if (own_depthwise(c, op.state)) return;
  const Scratch dense_weight(op.program, copy_to(weight, c.channels_last));
  const Scratch dense_input(op.program, copy_to(input, c.channels_last));
  const ConvPass pass = transposed ? ConvPass::kInputGradient : ConvPass::kForward;
  run_cudnn(op, c, pass);
}

// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
void forward(RuleContext& op) { run_forward(op, {3, 4, 5, 8}, op.args.flag(6)); }
// cudnn_convolution(input, weight, padding, stride, dilation, groups, ...)
void cudnn_forward(RuleContext& op) { run_forward(op, {3, 2, 4, 5}, false); }
// cudnn_convolution_transpose(input, weight, padding, output_padding, stride, dilation, groups, ...)
void cudnn_transposed(RuleContext& op) { run_forward(op, {4, 2, 5, 6}, true); }

void bias_gradient(RuleContext& op, const TensorMeta& gradient) {
  op.program.output(2);
  Reduction r;
  r.input = gradient;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(gradient.sizes.size()); ++i) {
    if (i != 1) r.dims.push_back(i);
  }
  r.accumulator_size = size_of(accumulate_type(gradient.dtype));
  r.output_size = size_of(gradient.dtype);
  r.accumulates_in_output = !is_reduced_float(gradient.dtype);
  reduce(op.program, r, op.gpu);
}

void backward(RuleContext& op) {
  TensorMeta gradient = op.args.tensor(0);
  const TensorMeta& input = op.args.tensor(1);
  const TensorMeta& weight = op.args.tensor(2);
  if (!valid(input, weight) || op.args.outs() < 3) return;
  Convolution c = make(input, weight, op.args, {4, 5, 6, 9});
  c.transposed = op.args.flag(7);
  c.output_sizes = gradient.sizes;
  if (c.output_sizes.size() != input.sizes.size()) return;
  const bool input_wanted = op.args.mask(10, 0);
  const bool weight_wanted = op.args.mask(10, 1);
  const Scratch dense_gradient(op.program, copy_to(gradient, c.channels_last));
  gradient.strides = dense_strides(gradient.sizes, c.channels_last);
  if (own_depthwise(c, op.state)) {
    if (weight_wanted) op.program.output(1);
    if (input_wanted) op.program.output(0);
  } else {
    if (input_wanted) {
      op.program.output(0);
      const Scratch dense_weight(op.program, copy_to(weight, c.channels_last));
      const ConvPass pass = c.transposed ? ConvPass::kForward : ConvPass::kInputGradient;
      run_cudnn(op, c, pass);
    }
    if (weight_wanted) {
      op.program.output(1);
      const Scratch dense_input(op.program, copy_to(input, c.channels_last));
      run_cudnn(op, c, ConvPass::kWeightGradient);
    }
  }
  if (op.args.mask(10, 2)) bias_gradient(op, gradient);
}

constexpr NamedRule kRules[] = {
    {"aten::convolution", forward},
    {"aten::convolution_overrideable", forward},
    {"aten::cudnn_convolution", cudnn_forward},
    {"aten::cudnn_convolution_transpose", cudnn_transposed},
    {"aten::convolution_backward", backward},
    {"aten::convolution_backward_overrideable", backward},
};

}  // namespace

std::span<const NamedRule> convolution_rules() { return kRules; }

}  // namespace peakline::kernels
