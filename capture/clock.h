// Time as cheaply as the machine gives it: a counter now, nanoseconds later.
#pragma once

#include <chrono>
#include <cstdint>

namespace peakline::capture {

inline std::uint64_t steady_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

// The processor's own counter: a third of the price of a clock.
inline std::uint64_t ticks_now() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return steady_ns();
#endif
}

// Turns ticks into nanoseconds since `start()`. The rate is measured once, over the time between
// start() and the first conversion, and kept, so that time never runs backwards. Not thread-safe.
class TickScale {
 public:
  void start() noexcept {
    ticks_ = ticks_now();
    ns_ = steady_ns();
    rate_ = 0;
  }
  [[nodiscard]] std::uint64_t ns(std::uint64_t ticks) noexcept {
    if (rate_ == 0) measure();
    return ticks <= ticks_ ? 0 : static_cast<std::uint64_t>(rate_ * double(ticks - ticks_));
  }

 private:
  void measure() noexcept {
    const std::uint64_t ticks = ticks_now();
    const std::uint64_t ns = steady_ns();
    rate_ = ticks > ticks_ ? double(ns - ns_) / double(ticks - ticks_) : 1.0;
    if (rate_ <= 0) rate_ = 1.0;
  }

  std::uint64_t ticks_ = 0;
  std::uint64_t ns_ = 0;
  double rate_ = 0;
};

}  // namespace peakline::capture
