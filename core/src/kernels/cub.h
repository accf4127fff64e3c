// Temporary storage of the CUB algorithms torch calls, as CUB's dispatch code adds it up: every part
// is rounded to 256 bytes, and 255 more make room for aligning the first.
#pragma once

#include <cstdint>

#include <peakline/device_profile.h>

namespace peakline::kernels::cub {

constexpr std::int64_t kAlign = 256;
constexpr std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}
constexpr std::int64_t div_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// cub::DeviceRadixSort (onesweep) over keys of `bits` bits with values; value_size 0: keys only.
std::int64_t radix_sort(std::int64_t n, std::int64_t key_size, std::int64_t value_size, int bits);
// cub::DeviceMergeSort, which Thrust takes where the order is not the usual one.
std::int64_t merge_sort(std::int64_t n, std::int64_t key_size, std::int64_t value_size);
// cub::DeviceReduce.
std::int64_t reduce(std::int64_t n, std::int64_t accumulator_size, const DeviceProfile& gpu);
// cub::DeviceScan of elements of this size.
std::int64_t scan(std::int64_t n, std::int64_t element_size);
// cub::DeviceSelect (flagged, unique).
std::int64_t select(std::int64_t n);
// cub::DeviceRunLengthEncode.
std::int64_t run_length_encode(std::int64_t n);

}  // namespace peakline::kernels::cub
