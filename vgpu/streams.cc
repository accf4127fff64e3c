#include "vgpu/streams.h"

#include <algorithm>

namespace peakline::vgpu {

std::atomic<std::uint64_t> ThisThread::session_{1};

namespace {

constexpr std::uint32_t kStreamsPerPool = 32;
// The id of a pool's stream: index, then the pool (1 is the lowest priority), then a set bit.
constexpr std::int64_t stream_id(std::uint32_t index, int pool) {
  return static_cast<std::int64_t>(index) << 5 | static_cast<std::int64_t>(pool + 1) << 1 | 1;
}

}  // namespace

std::int64_t StreamPool::take(int device, int priority) noexcept {
  const int pool = std::clamp(-priority, 0, kPriorities - 1);
  auto& next = next_[static_cast<std::size_t>(device)][static_cast<std::size_t>(pool)];
  return stream_id(next.fetch_add(1, std::memory_order_relaxed) % kStreamsPerPool, pool);
}

void StreamPool::reset() noexcept {
  for (auto& device : next_) {
    for (auto& pool : device) pool.store(0, std::memory_order_relaxed);
  }
}

}  // namespace peakline::vgpu
