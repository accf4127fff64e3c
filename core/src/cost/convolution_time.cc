// Convolutions as the matrix products that cuDNN makes of them: pictures times places by output
// channels, over input channels times the kernel's places.
#include "cost/gemm.h"
#include "cost/rules.h"

namespace peakline::cost {
namespace {

// Gathering the operands costs a part of the rate that plain products reach.
constexpr double kGatherShare = 0.58;
// Gradients gather both operands, or scatter the result.
constexpr double kGradientShare = 0.42;
// Pictures of three channels leave most of a load empty, and only general kernels take them.
constexpr double kFewChannels = 0.3;
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
  bool depthwise = false;
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

Gemm gemm_of(const Parts& p, double m, double n, double k, double share) {
  Gemm gemm;
  gemm.batch = p.groups;
  gemm.m = m;
  gemm.n = n;
  gemm.k = k;
  gemm.dtype = p.weight->dtype;
  gemm.allow_tf32 = p.allow_tf32;
  gemm.share = share * (few_channels(p) ? kFewChannels : 1);
  gemm.bytes = bytes_of(p);
  return gemm;
}

// Tensor cores want channels last: the picture is turned before, and the result after.
void add_turn(const Parts& p, const TensorMeta& tensor, OpTimer& op) {
  const bool tensor_cores =
      is_reduced_float(tensor.dtype) || (tensor.dtype == DType::kFloat32 && p.allow_tf32);
  // One place at a time is a plain product in either layout.
  const bool plain = p.weight->numel() == p.weight->sizes[0] * p.weight->sizes[1];
  if (p.channels_last || !tensor_cores || plain) return;
  const double bytes = 2 * distinct_bytes(tensor);
  op.add({.memory_us = op.machine().row_memory_us(bytes)}, bytes);
}

// torch's own kernels for a picture per channel: every place reads the kernel's places.
void add_depthwise(const Parts& p, OpTimer& op) {
  const double kernel = dim(*p.weight, 2) * dim(*p.weight, 3);
  const auto results = static_cast<double>(p.output->numel());
  constexpr double kInstructions = 6;  // address, bounds, two loads, multiply-add
  op.add({.compute_us = op.machine().instructions_us(results * kernel * kInstructions),
          .memory_us = op.machine().memory_us(bytes_of(p))},
         bytes_of(p), 2 * results * kernel);
}

bool is_depthwise(const Parts& p) {
  return p.depthwise || (p.groups > 1 && dim(*p.weight, 1) == 1 && !p.transposed);
}

void add_forward(const Parts& p, OpTimer& op) {
  if (is_depthwise(p)) return add_depthwise(p, op);
  const Numbers n = numbers_of(p);
  add_turn(p, *p.input, op);
  if (p.transposed)
    add_gemm(gemm_of(p, n.places, n.in, n.out, kGatherShare), op);
  else
    add_gemm(gemm_of(p, n.places, n.out, n.in, kGatherShare), op);
  add_turn(p, *p.output, op);
}

void add_backward(const Parts& p, const CallView& view, OpTimer& op) {
  constexpr std::size_t kMask = 10;
  const Numbers n = numbers_of(p);
  if (view.args.mask(kMask, 0)) {
    if (is_depthwise(p)) {
      add_depthwise(p, op);
    } else {
      add_turn(p, *p.output, op);
      add_gemm(gemm_of(p, n.places, n.in, n.out, kGradientShare), op);
      add_turn(p, *p.input, op);
    }
  }
  if (view.args.mask(kMask, 1)) {
    if (is_depthwise(p)) {
      add_depthwise(p, op);
    } else {
      add_turn(p, *p.input, op);
      if (!view.args.mask(kMask, 0)) add_turn(p, *p.output, op);
      // The weight's gradient is small and deep: its sums are split over all multiprocessors.
      add_gemm(gemm_of(p, n.in, n.out, n.places, kGradientShare), op);
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
