// Sums of sizes that a file may have made up.
#pragma once

#include <cstdint>
#include <limits>

#include <peakline/units.h>

namespace peakline {

// More than any memory has: a pebibyte on one device. Sizes above it are not believed.
inline constexpr Bytes kMostBytes{std::int64_t{1} << 50};

// Of sizes that only ever grow, over a whole recording: stops at the largest number.
inline Bytes capped_sum(Bytes left, Bytes right) noexcept {
  std::int64_t sum = 0;
  if (!__builtin_add_overflow(left.raw(), right.raw(), &sum)) return Bytes(sum);
  return Bytes(right < Bytes{} ? std::numeric_limits<std::int64_t>::min()
                               : std::numeric_limits<std::int64_t>::max());
}

}  // namespace peakline
