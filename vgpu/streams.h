// Current devices, current streams, and new ones, as torch numbers them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "vgpu/memory.h"

namespace peakline::vgpu {

// The calling thread's current device and streams. A session gives every thread a fresh state.
// Static functions; each thread sees its own.
class ThisThread {
 public:
  static int device() noexcept { return state().device; }
  static int exchange_device(int device) noexcept {
    State& mine = state();
    const int before = mine.device;
    mine.device = device;
    return before;
  }
  static std::int64_t stream(int device) noexcept {
    return state().streams[static_cast<std::size_t>(device)];
  }
  static std::int64_t exchange_stream(int device, std::int64_t stream) noexcept {
    std::int64_t& slot = state().streams[static_cast<std::size_t>(device)];
    const std::int64_t before = slot;
    slot = stream;
    return before;
  }
  // A new session has begun: all threads start again on device 0 and the default streams.
  static void reset_all() noexcept { session_.fetch_add(1, std::memory_order_relaxed); }

 private:
  struct State {
    std::uint64_t session = 0;
    int device = 0;
    std::array<std::int64_t, kMaxDevices> streams{};
  };
  static State& state() noexcept {
    thread_local State mine;
    const std::uint64_t now = session_.load(std::memory_order_relaxed);
    if (mine.session != now) mine = {now, 0, {}};
    return mine;
  }
  static std::atomic<std::uint64_t> session_;
};

// torch keeps 32 streams per device and priority and hands them out in turn; the same ids here, so
// that programs with many streams share them as they would.
class StreamPool {
 public:
  std::int64_t take(int device, int priority) noexcept;
  void reset() noexcept;

 private:
  static constexpr int kPriorities = 4;
  std::array<std::array<std::atomic<std::uint32_t>, kPriorities>, kMaxDevices> next_{};
};

// The allocator keeps a cache per stream; ids are small enough to be its numbers.
inline std::uint32_t allocator_stream(std::int64_t id) noexcept {
  return static_cast<std::uint32_t>(id);
}

}  // namespace peakline::vgpu
