#include "kernels/cudnn_conv.h"

namespace peakline::kernels {
namespace {

constexpr std::int64_t kHeader = 16;
constexpr std::int64_t kVector = 8;  // channels that tensor cores take at once, in half precision

std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

}  // namespace

std::int64_t cudnn_conv_workspace(const ConvProblem& p, ConvPass pass, const DeviceProfile& /*gpu*/,
                                  const KernelState& /*state*/) {
  const std::int64_t element = size_of(p.dtype);
  const bool pads = is_reduced_float(p.dtype) && p.in_channels / p.groups % kVector != 0;
  const std::int64_t channels = pads ? round_up(p.in_channels, kVector) : p.in_channels;
  const std::int64_t input = p.batch * channels * p.in_pixels * element;
  const std::int64_t output = p.batch * p.out_channels * p.out_pixels * element;
  const std::int64_t weight = p.out_channels * channels / p.groups * p.kernel_pixels * element;
  std::int64_t bytes = 0;
  if (!p.channels_last) {
    bytes = input + output + (p.kernel_pixels > 1 ? weight : 0) + kHeader;
  } else if (pads) {
    bytes = input + weight + kHeader;
  }
  (void)pass;
  return bytes;
}

}  // namespace peakline::kernels
