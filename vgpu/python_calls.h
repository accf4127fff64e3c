// Calls of Python functions, counted by who knows Python and taken by the clock.
#pragma once

#include <atomic>
#include <cstdint>

namespace peakline::vgpu {

// The host's time is that of the threads that issue work: each has a count of its own, which the clock
// takes when the thread tells it something. A thread that loads data or draws a progress bar issues
// nothing, so nobody takes its count.
class PythonCalls {
 public:
  // From here on counts start anew, on every thread.
  static void begin() noexcept { session_.fetch_add(1, std::memory_order_relaxed); }
  static void add() noexcept {
    renew();
    ++own_.count;
  }
  // This thread's, since it was last asked.
  [[nodiscard]] static std::uint64_t take() noexcept {
    renew();
    const std::uint64_t count = own_.count;
    own_.count = 0;
    return count;
  }

 private:
  struct Own {
    std::uint64_t session;
    std::uint64_t count;
  };
  static void renew() noexcept {
    const std::uint64_t now = session_.load(std::memory_order_relaxed);
    if (own_.session != now) own_ = {now, 0};
  }

  inline static std::atomic<std::uint64_t> session_{0};
  inline static constinit thread_local Own own_{0, 0};
};

}  // namespace peakline::vgpu
