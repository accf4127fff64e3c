// How cuDNN splits the sum over pixels in the gradient of a convolution's weight.
#include <algorithm>

#include "kernels/cudnn_conv.h"

namespace peakline::kernels {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

std::int64_t ceil_div(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

// The gradient as tiles: outputs by input channels, for every pixel of the window.
struct Tiles {
  std::int64_t count;
  std::int64_t bytes;  // of one, in float

  [[nodiscard]] std::int64_t all() const { return count * bytes; }
};

Tiles tiles_of(const ConvProblem& p) {
  const std::int64_t inputs = p.in_channels / p.groups;
  const std::int64_t outputs = p.out_channels / p.groups;
  const std::int64_t high = outputs <= 64 ? 64 : 128;
  const std::int64_t wide = inputs <= 64 ? 64 : 128;
  return {p.groups * p.kernel_pixels * ceil_div(inputs, wide) * ceil_div(outputs, high),
          high * wide * 4};
}

// One tile an SM. Fewer tiles than SMs: each is computed in parts of at least so many pixels. More:
// the last round's are.
std::int64_t float_parts(const Tiles& tiles, std::int64_t pixels, std::int64_t sms) {
  constexpr std::int64_t kLeastPixels = std::int64_t{36} * 32;
  constexpr std::int64_t kLeastInLastRound = std::int64_t{7} * 32;
  if (tiles.count <= sms) {
    const std::int64_t parts = std::min(sms / tiles.count, pixels / kLeastPixels);
    return parts < 2 ? 0 : parts * tiles.all();
  }
  const std::int64_t left = tiles.count % sms;
  if (left == 0) return 0;
  const std::int64_t parts = std::min(sms / left, pixels / kLeastInLastRound);
  return parts < 2 ? 0 : parts * left * tiles.bytes;
}

std::int64_t half_parts(const ConvProblem& p, const Tiles& tiles, std::int64_t pixels,
                        std::int64_t sms) {
  if (tiles.all() > kMiB) return 0;
  const std::int64_t inputs = p.in_channels / p.groups;
  const std::int64_t rows = inputs < 64 ? 11 : inputs == 64 ? 40 : 98;
  const std::int64_t least = 64 * rows;
  const std::int64_t parts = std::min(sms / tiles.count, pixels / least);
  return parts < 2 ? 0 : parts * tiles.all();
}

// Windows of one pixel over channels-last pictures in half precision: about five MiB of parts.
std::int64_t one_pixel_parts(const ConvProblem& p, std::int64_t pixels) {
  constexpr std::int64_t kLeastPixels = 1338;
  constexpr std::int64_t kMost = 75;
  const std::int64_t part = p.out_channels * p.in_channels * 4;
  if (p.stride > 1 || part > kMiB || part == 0) return 0;
  return std::min({21 * kMiB / 4 / part, pixels / kLeastPixels, kMost}) * part;
}

std::int64_t half_product_parts(std::int64_t part, std::int64_t pixels, bool plenty) {
  constexpr std::int64_t kLeastPixels = 1332;
  constexpr std::int64_t kLargePart = kMiB / 4;
  const std::int64_t room = (plenty ? 32 : 4) * kMiB / part;
  return std::min({room, pixels / kLeastPixels, std::int64_t{part > kLargePart ? 16 : 83}});
}

// Tiles of 256 outputs by 128 inputs, a part an SM.
std::int64_t float_product_parts(const ConvProblem& p, std::int64_t pixels, bool plenty,
                                 std::int64_t sms) {
  constexpr std::int64_t kLeastPixels = 128;
  if (!plenty) return 0;
  const std::int64_t tiles = ceil_div(p.out_channels, 256) * ceil_div(p.in_channels, 128);
  return std::min(sms / std::max<std::int64_t>(tiles, 1), pixels / kLeastPixels);
}

}  // namespace

std::int64_t split_product(const ConvProblem& p, bool plenty, const DeviceProfile& gpu) {
  constexpr std::int64_t kFlags = 272;
  const std::int64_t part = std::max<std::int64_t>(p.out_channels * p.in_channels * 4, 1);
  const std::int64_t pixels = p.batch * p.out_pixels;
  const std::int64_t parts = p.half() ? half_product_parts(part, pixels, plenty)
                                      : float_product_parts(p, pixels, plenty, gpu.sm_count);
  return parts < 2 ? 0 : parts * part + kFlags;
}

std::int64_t split_weight_gradient(const ConvProblem& p, const DeviceProfile& gpu) {
  const std::int64_t pixels = p.batch * p.out_pixels;
  if (!p.half()) return float_parts(tiles_of(p), pixels, gpu.sm_count);
  if (p.kernel_pixels == 1) return p.channels_last ? one_pixel_parts(p, pixels) : 0;
  return half_parts(p, tiles_of(p), pixels, gpu.sm_count);
}

}  // namespace peakline::kernels
