#include "vgpu/high_water.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "vgpu/memory.h"

namespace peakline::vgpu {
namespace {

struct Mark {
  std::int64_t allocated = 0;
  std::int64_t reserved = 0;
};
std::mutex g_mutex;
std::array<Mark, kMaxDevices> g_marks;

}  // namespace

void raise_high_water(int device, std::int64_t allocated, std::int64_t reserved) noexcept {
  const std::lock_guard guard(g_mutex);
  Mark& mark = g_marks[static_cast<std::size_t>(device)];
  mark.allocated = std::max(mark.allocated, allocated);
  mark.reserved = std::max(mark.reserved, reserved);
}

std::pair<std::int64_t, std::int64_t> take_high_water(int device, std::int64_t allocated_now,
                                                      std::int64_t reserved_now) noexcept {
  const std::lock_guard guard(g_mutex);
  Mark& mark = g_marks[static_cast<std::size_t>(device)];
  const Mark before = mark;
  mark = {allocated_now, reserved_now};
  return {std::max(before.allocated, allocated_now), std::max(before.reserved, reserved_now)};
}

}  // namespace peakline::vgpu
