// The most that a device held since somebody last asked: peaks of parts of a program, beside torch's
// own, which belong to the program.
#pragma once

#include <cstdint>
#include <utility>

namespace peakline::vgpu {

void raise_high_water(int device, std::int64_t allocated, std::int64_t reserved) noexcept;
// Allocated and reserved bytes since the last call. `allocated_now`, `reserved_now`: where the next
// part begins.
std::pair<std::int64_t, std::int64_t> take_high_water(int device, std::int64_t allocated_now,
                                                      std::int64_t reserved_now) noexcept;

}  // namespace peakline::vgpu
