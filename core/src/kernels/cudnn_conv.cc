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
};

Sides sides_of(const ConvProblem& p, std::int64_t in_channels) {
  const std::int64_t element = size_of(p.dtype);
  return {p.batch * in_channels * p.in_pixels * element,
          p.batch * p.out_channels * p.out_pixels * element,
          p.out_channels * in_channels / p.groups * p.kernel_pixels * element};
}

// Gradients of small weights are split over the pixels, so that all SMs have work; the parts are
// summed in float.
std::int64_t split_parts(const ConvProblem& p) {
  if (is_reduced_float(p.dtype) && p.kernel_pixels == 1 && p.stride > 1) return 0;
  const std::int64_t part = p.out_channels * (p.in_channels / p.groups) * p.kernel_pixels * 4;
  const std::int64_t most = p.dtype == DType::kFloat32 ? 4 * kMiB : 2 * kMiB;
  if (part > most || (p.dtype != DType::kFloat32 && part > kMiB)) return 0;
  return std::min(most / part, std::int64_t{16}) * part;
}

// Channels-last depthwise: one part per picture and eighth of it.
std::int64_t depthwise_workspace(const ConvProblem& p, ConvPass pass) {
  if (pass != ConvPass::kWeightGradient) return 0;
  return p.out_channels * p.kernel_pixels * 4 * p.batch * 8;
}

// Too few channels for a vector. Half precision is padded to one; floats are converted as they are.
std::int64_t thin_workspace(const ConvProblem& p, ConvPass pass) {
  const bool half = is_reduced_float(p.dtype);
  const Sides plain = sides_of(p, p.in_channels);
  const Sides padded = half ? sides_of(p, round_up(p.in_channels, kVector)) : plain;
  const std::int64_t output = p.channels_last ? 0 : plain.output;
  switch (pass) {
    case ConvPass::kForward:
      // Small windows over three colours go to a kernel that reads the pictures as they are.
      if (half && p.in_channels == 3 && p.kernel_pixels <= kVector * 2) return 0;
      return padded.input + padded.weight + output + kHeader;
    case ConvPass::kInputGradient:
      return half ? padded.input + padded.weight + output + kHeader
                  : plain.input + plain.weight + plain.output + kHeader;
    default:
      return padded.input + padded.weight + (half ? output : plain.output) + kHeader +
             padded.input / 4;
  }
}

// A window of one pixel over dense pictures is a matrix product, if its rows are aligned.
bool plain_product(const ConvProblem& p) {
  const std::int64_t aligned = is_reduced_float(p.dtype) ? 8 : 4;
  return !p.channels_last && p.kernel_pixels == 1 && p.stride == 1 && p.groups == 1 &&
         p.in_pixels == p.out_pixels && p.in_pixels % aligned == 0;
}

// Too few outputs for a vector: padded to one, or eight partial gradients of the weight.
std::int64_t few_outputs_workspace(const ConvProblem& p, ConvPass pass) {
  if (p.kernel_pixels == 1 || p.channels_last) {
    const std::int64_t weight = p.out_channels * p.in_channels * p.kernel_pixels * 4;
    return pass == ConvPass::kWeightGradient ? 8 * weight : 0;
  }
  ConvProblem padded = p;
  padded.out_channels = kVector;
  const Sides sides = sides_of(padded, p.in_channels);
  return sides.input + sides.output + sides.weight + kHeader;
}

}  // namespace

std::int64_t cudnn_conv_workspace(const ConvProblem& p, ConvPass pass, const DeviceProfile& /*gpu*/,
                                  const KernelState& /*state*/) {
  if (p.depthwise() && p.channels_last) return depthwise_workspace(p, pass);
  if (plain_product(p)) return pass == ConvPass::kWeightGradient ? split_parts(p) : 0;
  if (p.out_channels < kVector) return few_outputs_workspace(p, pass);
  if (p.in_channels / p.groups < kVector) return thin_workspace(p, pass);
  std::int64_t bytes = pass == ConvPass::kWeightGradient ? split_parts(p) : 0;
  if (!p.channels_last) {
    const Sides sides = sides_of(p, p.in_channels);
    bytes += sides.input + sides.output + (p.kernel_pixels > 1 ? sides.weight : 0) + kHeader;
  }
  return bytes;
}

}  // namespace peakline::kernels
