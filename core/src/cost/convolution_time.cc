// Convolutions as the matrix products that cuDNN makes of them: pictures times places by output
// channels, over input channels times the kernel's places.
#include "cost/depthwise.h"
#include "cost/gemm.h"
#include "cost/rules.h"

namespace peakline::cost {
namespace {

// Of the rate that plain products reach, with operands that are gathered on the way.
constexpr double kGatherShare = 0.93;
// Gradients gather both operands, or scatter the result; TF32 has fewer kernels for them.
constexpr double kGradient16 = 0.8;
constexpr double kGradient32 = 0.62;
// Windows of one place in single precision are left to older kernels.
constexpr double kPlainSingle = 0.8;
// Pictures of three channels leave most of a load empty, and only general kernels take them; single
// precision has some that were made for it, the weight's gradient above all.
constexpr double kFewChannels = 0.18;
constexpr double kFewSingle = 0.3;
constexpr double kFewSingleWeight = 0.6;
// From one layout to another short runs are read or written, the shorter the smaller the elements are;
// weights have the shortest. Shares of the memory's rate.
constexpr double kTurn16 = 0.46;
constexpr double kTurn32 = 0.71;
constexpr double kTurnWeight16 = 0.147;
constexpr double kTurnWeight32 = 0.27;
// Tensor cores read 16 bytes of channels at a time: fewer are filled up.
constexpr double kChannelBytes = 16;

struct Parts {
  const TensorMeta* input = nullptr;
  const TensorMeta* weight = nullptr;
  const TensorMeta* output = nullptr;
  double groups = 1;
  bool transposed = false;
  bool channels_last = false;
  bool allow_tf32 = true;
  bool depthwise = false;  // by torch's own kernels
  bool strided = false;
};

double dim(const TensorMeta& tensor, std::size_t index) {
  return index < tensor.sizes.size() ? static_cast<double>(tensor.sizes[index]) : 1;
}

Parts parts_of(const CallView& view, bool backward) {
  Parts p;
  p.input = &view.args.tensor(backward ? 1 : 0);
  p.weight = &view.args.tensor(backward ? 2 : 1);
  p.output = backward ? &view.args.tensor(0) : &view.args.out(0);
  p.channels_last = p.input->channels_last() && !p.input->contiguous();
  if (const auto& c = view.call.convolution) {
    p.groups = static_cast<double>(c->groups);
    p.transposed = c->transposed;
    p.channels_last = c->channels_last;
    p.allow_tf32 = c->allow_tf32;
    p.depthwise = c->backend == Convolution::Backend::kDepthwise;
    for (const std::int64_t step : c->stride) p.strided = p.strided || step > 1;
  } else if (view.name == "convolution" || backward) {
    p.transposed = view.args.flag(backward ? 7 : 6);
    p.groups = static_cast<double>(view.args.integer(backward ? 9 : 8, 1));
    p.allow_tf32 = view.state.switches.cudnn_allow_tf32;
  }
  p.groups = std::max(p.groups, 1.0);
  return p;
}

// The three products of a convolution have the same three numbers, in another order.
struct Numbers {
  double places = 0;  // pictures times places of the result
  double out = 0;     // channels of a group
  double in = 0;      // channels of a group, times the kernel's places
};

Numbers numbers_of(const Parts& p) {
  const TensorMeta& result = p.transposed ? *p.input : *p.output;
  Numbers n;
  n.out = dim(*p.weight, 0) / p.groups;
  const double kernel =
      static_cast<double>(p.weight->numel()) / std::max(1.0, dim(*p.weight, 0) * dim(*p.weight, 1));
  const double channels = dim(*p.weight, 1);
  const auto size = static_cast<double>(size_of(p.weight->dtype));
  const double least = std::max(1.0, kChannelBytes / size);
  n.in = ceil_div(channels, least) * least * kernel;
  if (p.transposed) n.out = dim(*p.weight, 0) / p.groups;
  n.places = static_cast<double>(result.numel()) / std::max(1.0, dim(result, 1));
  return n;
}

double bytes_of(const Parts& p) {
  return distinct_bytes(*p.input) + distinct_bytes(*p.weight) + distinct_bytes(*p.output);
}

bool few_channels(const Parts& p) {
  return dim(*p.weight, 1) * static_cast<double>(size_of(p.weight->dtype)) < kChannelBytes;
}

// A window of one place is a plain product, where nothing is left out.
bool plain(const Parts& p) {
  return !p.strided && p.weight->numel() == p.weight->sizes[0] * p.weight->sizes[1];
}

Gemm gemm_of(const Parts& p, double m, double n, double k, bool gradient = false) {
  Gemm gemm;
  gemm.batch = p.groups;
  gemm.m = m;
  gemm.n = n;
  gemm.k = k;
  gemm.dtype = p.weight->dtype;
  gemm.allow_tf32 = p.allow_tf32;
  const bool half = is_reduced_float(gemm.dtype);
  const double gathered = !gradient ? kGatherShare : half ? kGradient16 : kGradient32;
  gemm.share = plain(p) ? (half ? 1 : kPlainSingle) : gathered;
  if (few_channels(p)) gemm.share *= half ? kFewChannels : kFewSingle;
  gemm.bytes = bytes_of(p);
  return gemm;
}

// Tensor cores want channels last: picture and weight are turned before, and the result after.
void add_turn(const Parts& p, const TensorMeta& tensor, OpTimer& op) {
  const bool tensor_cores =
      is_reduced_float(tensor.dtype) || (tensor.dtype == DType::kFloat32 && p.allow_tf32);
  // One place at a time is a product in either layout.
  if (p.channels_last || !tensor_cores || plain(p)) return;
  const double bytes = 2 * distinct_bytes(tensor);
  const bool half = is_reduced_float(tensor.dtype);
  const bool weight = &tensor == p.weight;
  const double share = weight ? (half ? kTurnWeight16 : kTurnWeight32) : (half ? kTurn16 : kTurn32);
  op.add({.memory_us = bytes / (op.machine().rates().dram_gbps * share) / 1e3}, bytes);
}

Depthwise depthwise_of(const Parts& p) {
  Depthwise d;
  d.inputs = static_cast<double>(p.input->numel());
  d.results = static_cast<double>(p.output->numel());
  d.channels = dim(*p.weight, 0);
  d.taps = static_cast<double>(p.weight->numel()) / std::max(1.0, d.channels);
  d.bytes = bytes_of(p);
  d.picture_bytes = distinct_bytes(*p.input) + distinct_bytes(*p.output);
  d.dtype = p.weight->dtype;
  d.own = p.depthwise;
  d.strided = p.strided;
  d.channels_last = p.channels_last;
  return d;
}

// Groups with windows of many places (speech models' positions) have no kernel for all at once: each
// group is a launch of its own that fills a few multiprocessors.
bool one_group_at_a_time(const Parts& p) {
  constexpr double kWide = 32;
  const double taps =
      static_cast<double>(p.weight->numel()) / std::max(1.0, dim(*p.weight, 0) * dim(*p.weight, 1));
  return p.groups > 1 && !p.transposed && taps > kWide;
}

void add_groups(const Parts& p, const Numbers& n, OpTimer& op) {
  constexpr double kStepUs = 0.95;     // of 32 numbers of the sum
  constexpr double kHalfTflops = 1.7;  // without tensor cores, at most
  const double flops = 2 * n.places * n.out * n.in;
  double us = n.in / 32 * kStepUs;
  if (is_reduced_float(p.weight->dtype)) us = std::max(us, flops / kHalfTflops / 1e6);
  for (auto left = static_cast<std::int64_t>(p.groups); left > 0; --left) {
    op.add({.compute_us = us}, bytes_of(p) / p.groups, flops);
  }
}

bool is_depthwise(const Parts& p) {
  return p.depthwise || (p.groups > 1 && dim(*p.weight, 1) == 1 && !p.transposed);
}

void add_forward(const Parts& p, OpTimer& op) {
  if (is_depthwise(p)) return add_depthwise_forward(depthwise_of(p), op);
  const Numbers n = numbers_of(p);
  add_turn(p, *p.input, op);
  add_turn(p, *p.weight, op);
  if (one_group_at_a_time(p))
    add_groups(p, n, op);
  else if (p.transposed)
    add_gemm(gemm_of(p, n.places, n.in, n.out), op);
  else
    add_gemm(gemm_of(p, n.places, n.out, n.in), op);
  add_turn(p, *p.output, op);
}

void add_backward(const Parts& p, const CallView& view, OpTimer& op) {
  constexpr std::size_t kMask = 10;
  const Numbers n = numbers_of(p);
  if (view.args.mask(kMask, 0)) {
    if (is_depthwise(p)) {
      add_depthwise_input(depthwise_of(p), op);
    } else {
      add_turn(p, *p.output, op);
      add_turn(p, *p.weight, op);
      if (one_group_at_a_time(p))
        add_groups(p, n, op);
      else
        add_gemm(gemm_of(p, n.places, n.in, n.out, true), op);
      add_turn(p, *p.input, op);
    }
  }
  if (view.args.mask(kMask, 1)) {
    if (is_depthwise(p)) {
      add_depthwise_weight(depthwise_of(p), op);
    } else {
      add_turn(p, *p.input, op);
      add_turn(p, *p.output, op);
      // The weight's gradient is small and deep: its sums are split over all multiprocessors.
      Gemm weight = gemm_of(p, n.in, n.out, n.places, true);
      if (few_channels(p) && !is_reduced_float(weight.dtype))
        weight.share *= kFewSingleWeight / kFewSingle;
      add_gemm(weight, op);
      add_turn(p, *p.weight, op);
    }
  }
  if (view.args.mask(kMask, 2) && view.args.integers(3).size() == 1) {
    const double bytes = distinct_bytes(*p.output);
    op.add({.memory_us = op.machine().row_memory_us(bytes),
            .latency_us = op.machine().rates().reduce_us},
           bytes);
  }
}

}  // namespace

bool convolution_rules(const CallView& view, OpTimer& op) {
  const std::string_view name = view.name;
  if (name == "convolution_backward" || name == "convolution_backward_overrideable") {
    add_backward(parts_of(view, true), view, op);
    return true;
  }
  static constexpr std::string_view kForward[] = {
      "convolution",         "convolution_overrideable",    "cudnn_convolution",
      "_convolution",        "cudnn_convolution_transpose", "_conv_depthwise2d",
      "conv_depthwise3d",    "_slow_conv2d_forward",        "slow_conv_dilated2d",
      "slow_conv3d_forward", "slow_conv_transpose2d",       "slow_conv_transpose3d",
      "slow_conv_dilated3d", "mkldnn_convolution"};
  for (const std::string_view known : kForward) {
    if (known != name) continue;
    add_forward(parts_of(view, false), op);
    return true;
  }
  return false;
}

}  // namespace peakline::cost
