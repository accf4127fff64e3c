#include "kernels/cub.h"

#include <algorithm>

namespace peakline::kernels::cub {
namespace {

constexpr std::int64_t kRadixDigits = 256;
constexpr std::int64_t kLargestPortion = (std::int64_t{1} << 28) - 1;
constexpr std::int64_t kTilePadding = 32;

// Items per tile scale down with the larger of key and value, from a nominal count for 4 bytes.
std::int64_t scaled(std::int64_t threads, std::int64_t nominal, std::int64_t widest) {
  return threads * std::max<std::int64_t>(1, nominal * 4 / std::max<std::int64_t>(4, widest));
}

// Items one block ranks at once. CUB tunes this per type; these are its choices for sm90 as far as
// they were seen, and the neighbours' elsewhere.
std::int64_t onesweep_tile(std::int64_t key_size, std::int64_t value_size) {
  constexpr std::int64_t kThreads = 384;
  if (value_size == 0) return kThreads * (key_size > 4 ? 15 : 23);
  if (key_size > 4) return kThreads * 12;
  return kThreads * (value_size > 4 ? 14 : 21);
}

}  // namespace

std::int64_t radix_sort(std::int64_t n, std::int64_t key_size, std::int64_t value_size, int bits) {
  const std::int64_t widest = std::max(key_size, value_size);
  if (n <= scaled(256, 19, widest)) return 1;  // one block sorts in shared memory
  const std::int64_t tile = onesweep_tile(key_size, value_size);
  const std::int64_t passes = div_up(bits, 8);
  const std::int64_t portion = kLargestPortion / tile * tile;
  const std::int64_t portions = div_up(n, portion);
  const std::int64_t blocks = div_up(std::min(n, portion), tile);
  std::int64_t bytes = aligned(portions * passes * kRadixDigits * 8);
  bytes += aligned(blocks * kRadixDigits * 4);
  if (passes > 1) bytes += aligned(n * key_size) + aligned(n * value_size);
  return bytes + aligned(portions * passes * 4) + kAlign - 1;
}

std::int64_t merge_sort(std::int64_t n, std::int64_t key_size, std::int64_t value_size) {
  const std::int64_t tile = scaled(256, 17, key_size);
  const std::int64_t partitions = div_up(n, tile) + 1;
  return aligned(partitions * 4) + aligned(n * key_size) + aligned(n * value_size) + kAlign - 1;
}

std::int64_t reduce(std::int64_t n, std::int64_t accumulator_size, const DeviceProfile& gpu) {
  if (n <= 4096) return 1;
  const std::int64_t blocks = std::int64_t{gpu.sm_count} * (gpu.max_threads_per_sm / 256) * 5;
  return aligned(blocks * accumulator_size) + kAlign - 1;
}

std::int64_t scan(std::int64_t n, std::int64_t element_size) {
  const std::int64_t tile = element_size > 4 ? 896 : 1920;
  const std::int64_t status = element_size > 4 ? 16 : 8;
  return aligned((div_up(n, tile) + kTilePadding) * status) + aligned(1) + kAlign - 1;
}

std::int64_t select(std::int64_t n) {
  constexpr std::int64_t kTile = 4224;
  return aligned((div_up(n, kTile) + kTilePadding) * 8) + aligned(1) + kAlign - 1;
}

std::int64_t run_length_encode(std::int64_t n) {
  constexpr std::int64_t kTile = 384;  // fits the sizes that were seen; CUB's own was not read
  return aligned((div_up(n, kTile) + kTilePadding) * 8) + aligned(1) + kAlign - 1;
}

}  // namespace peakline::kernels::cub
