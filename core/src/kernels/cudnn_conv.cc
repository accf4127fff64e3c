#include "kernels/cudnn_conv.h"

#include <algorithm>

namespace peakline::kernels {
namespace {

constexpr std::int64_t kHeader = 16;
constexpr std::int64_t kVector = 8;  // channels that tensor cores take at once, in half precision
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

// Bytes of the three tensors, as the kernel sees them.
struct Sides {
  std::int64_t input;
  std::int64_t output;
  std::int64_t weight;

  [[nodiscard]] std::int64_t all() const { return input + output + weight; }
};

Sides sides_of(const ConvProblem& p, std::int64_t in_channels, std::int64_t out_channels) {
  const std::int64_t element = size_of(p.dtype);
  return {p.batch * in_channels * p.in_pixels * element,
          p.batch * out_channels * p.out_pixels * element,
          out_channels * in_channels / p.groups * p.kernel_pixels * element};
}

Sides plain_sides(const ConvProblem& p) { return sides_of(p, p.in_channels, p.out_channels); }

std::int64_t float_weight(const ConvProblem& p, std::int64_t in_channels,
                          std::int64_t out_channels) {
  return out_channels * in_channels / p.groups * p.kernel_pixels * 4;
}

// As many parts as a budget of bytes has room for, between a least and a most number.
std::int64_t parts_within(std::int64_t budget, std::int64_t part, std::int64_t least,
                          std::int64_t most) {
  return std::clamp(budget / std::max<std::int64_t>(part, 1), least, most) * part;
}

// Channels-last depthwise: one part per picture and eighth of it.
std::int64_t depthwise_workspace(const ConvProblem& p, ConvPass pass) {
  if (pass != ConvPass::kWeightGradient) return 0;
  return float_weight(p, p.in_channels, p.out_channels) * p.batch * 8;
}

std::int64_t thin_half(const ConvProblem& p, ConvPass pass) {
  const Sides plain = plain_sides(p);
  const bool narrow =
      p.dtype == DType::kFloat16 && p.stride == 2 && pass != ConvPass::kInputGradient;
  const std::int64_t channels = round_up(p.in_channels, narrow ? 4 : kVector);
  const Sides padded = sides_of(p, channels, p.out_channels);
  const std::int64_t converted = padded.input + padded.weight + kHeader;
  const std::int64_t output = p.channels_last ? 0 : plain.output;
  if (pass == ConvPass::kForward) {
    // Small windows over three colours go to a kernel that reads the pictures as they are.
    if (p.in_channels == 3 && p.kernel_pixels <= kVector * 2) return 0;
    return converted + output;
  }
  if (pass == ConvPass::kInputGradient) {
    return p.patches ? plain.all() + kHeader : converted + output;
  }
  const std::int64_t windows = p.patches && p.kernel_pixels <= 16 ? plain.output : 0;
  const std::int64_t part = float_weight(p, channels, p.out_channels);
  const std::int64_t most = narrow ? 4 : std::max<std::int64_t>(p.batch * p.out_pixels / 785, 3);
  return converted + output + windows + parts_within(6 * kMiB, part, 3, most);
}

std::int64_t thin_float_parts(const ConvProblem& p, std::int64_t part) {
  const std::int64_t rows = p.batch * p.out_pixels / 1200;  // pixels that one part sums over
  return parts_within(12 * kMiB, part, 1, part > kMiB ? 2 : std::max<std::int64_t>(rows, 1));
}

// So few numbers a window that a kernel reads the pictures as they are.
bool tiny_windows(const ConvProblem& p) {
  return p.stride > 1 && !p.patches && !p.channels_last && p.in_channels * p.kernel_pixels < 32;
}

std::int64_t thin_float(const ConvProblem& p, ConvPass pass) {
  if (tiny_windows(p)) return 0;
  const Sides plain = plain_sides(p);
  const std::int64_t output = p.channels_last ? 0 : plain.output;
  const bool sliding = p.stride == 1;
  if (pass == ConvPass::kForward) return plain.input + plain.weight + output + kHeader;
  if (pass == ConvPass::kWeightGradient) {
    if (sliding && p.channels_last && p.in_channels < kVector) return 0;
    return plain.all() + kHeader + thin_float_parts(p, plain.weight);
  }
  if (sliding) {
    if (p.channels_last && p.in_channels % 4 == 0) return 0;
    const Sides padded = sides_of(p, round_up(p.in_channels, 4), p.out_channels);
    return padded.input + padded.weight + output + kHeader;
  }
  return p.patches && !p.channels_last ? 0 : plain.all() + kHeader;
}

// The weight's gradient of one-pixel windows over few channels: both sides are converted, and the
// sum is split into tiles of 64 outputs by 32 inputs, one and a half an SM.
bool one_pixel_thin(const ConvProblem& p) {
  return !p.half() && p.kernel_pixels == 1 && p.groups == 1 && p.in_channels <= 32 &&
         p.out_channels >= 64;
}
std::int64_t one_pixel_thin_workspace(const ConvProblem& p, const DeviceProfile& gpu) {
  const Sides plain = plain_sides(p);
  const std::int64_t all_tiles = round_up(p.out_channels, 64) * 32 * 4;
  const std::int64_t parts = gpu.sm_count * 3 / 2 / (round_up(p.out_channels, 64) / 64);
  return plain.input + plain.output + kHeader + std::max<std::int64_t>(parts, 1) * all_tiles;
}

// A window of one pixel over dense pictures is a matrix product, if its rows are aligned.
bool plain_product(const ConvProblem& p, ConvPass pass) {
  const std::int64_t aligned = p.half() ? 8 : 4;
  const bool dense = !p.channels_last && p.kernel_pixels == 1 && p.stride == 1 && p.groups == 1 &&
                     p.in_pixels == p.out_pixels && p.in_pixels % aligned == 0;
  if (!dense || pass != ConvPass::kWeightGradient) return dense;
  if (one_pixel_thin(p)) return false;
  return p.batch * float_weight(p, p.in_channels, p.out_channels) <= 32 * kMiB;
}

// Too few outputs for a vector: padded to one.
std::int64_t few_outputs_workspace(const ConvProblem& p, ConvPass pass, const DeviceProfile& gpu) {
  const bool weight_wanted = pass == ConvPass::kWeightGradient;
  if (!p.half() && p.channels_last) {
    const std::int64_t parts = std::int64_t{2} * gpu.sm_count;
    return weight_wanted ? parts * float_weight(p, p.in_channels, p.out_channels) : 0;
  }
  const Sides padded = sides_of(p, p.in_channels, kVector);
  const std::int64_t part = float_weight(p, p.in_channels, kVector);
  const std::int64_t parts = weight_wanted ? parts_within(4 * kMiB, part, 1, 56) : 0;
  if (p.channels_last) {
    return pass == ConvPass::kForward ? 0 : padded.output + padded.weight + kHeader + parts;
  }
  return padded.all() + kHeader + parts;
}

// Some kernels for few channels read converted pictures and write the result where it belongs.
bool writes_directly(const ConvProblem& p, ConvPass pass) {
  constexpr std::int64_t kPixelsPerDepth = 600;
  const std::int64_t depth = p.in_channels / p.groups * p.kernel_pixels;
  return pass == ConvPass::kForward && !p.half() && p.groups == 1 &&
         std::min(p.in_channels, p.out_channels) < 96 && p.out_channels <= 256 &&
         p.batch * p.out_pixels < kPixelsPerDepth * depth;
}

std::int64_t converted_sides(const ConvProblem& p, ConvPass pass) {
  if (p.channels_last) return 0;
  const Sides sides = plain_sides(p);
  const bool weight_too = p.kernel_pixels > 1 && (p.half() || p.groups == 1);
  return sides.input + (writes_directly(p, pass) ? 0 : sides.output) +
         (weight_too ? sides.weight : 0) + kHeader;
}

// Fewer input channels than a kernel for many of them would take.
bool thin(const ConvProblem& p) {
  return p.in_channels / p.groups < (p.half() ? kVector : 32) && p.groups == 1;
}

// cuDNN's own kernels for depthwise pictures work on them as they lie: an H200 was seen to take
// nothing beside the results, forward and backward.
bool own_depthwise(const ConvProblem& p) { return p.depthwise() && !p.channels_last && p.half(); }

std::int64_t workspace_bytes(const ConvProblem& p, ConvPass pass, const DeviceProfile& gpu) {
  const bool weight_wanted = pass == ConvPass::kWeightGradient;
  if (p.depthwise() && p.channels_last) return depthwise_workspace(p, pass);
  if (own_depthwise(p)) return 0;
  if (plain_product(p, pass)) {  // one product a picture
    return weight_wanted ? p.batch * float_weight(p, p.in_channels, p.out_channels) : 0;
  }
  if (weight_wanted && !p.channels_last && p.stride == 1 && one_pixel_thin(p)) {
    return one_pixel_thin_workspace(p, gpu);
  }
  if (p.out_channels < kVector) return few_outputs_workspace(p, pass, gpu);
  if (thin(p)) return p.half() ? thin_half(p, pass) : thin_float(p, pass);
  return converted_sides(p, pass) + (weight_wanted ? split_weight_gradient(p, gpu) : 0);
}

// Where no rule explains all of what was measured: in float that is all but matrix products.
bool weak(const ConvProblem& p, ConvPass pass) {
  const bool product = p.kernel_pixels == 1 && p.stride == 1 && p.groups == 1;
  const bool few = thin(p) && pass == ConvPass::kWeightGradient;
  const bool unmeasured = p.depthwise() && !p.channels_last && !p.half();
  return p.unusual || few || unmeasured || (!p.half() && !product);
}

}  // namespace

ConvWorkspace cudnn_conv_workspace(const ConvProblem& p, ConvPass pass, const DeviceProfile& gpu) {
  return {workspace_bytes(p, pass, gpu),
          weak(p, pass) ? Certainty::kGuessed : Certainty::kModelled};
}

}  // namespace peakline::kernels
