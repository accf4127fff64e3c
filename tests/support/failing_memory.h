// Memory that runs out when a test says so: every operator new of the program goes through it.
#pragma once

#include <atomic>
#include <cstdint>

namespace peakline::testing {

// The allocation with this number, counted from arm(), fails, and so does every later one of the next
// `many`. 0: none.
struct FailingMemory {
  static inline std::atomic<std::int64_t> countdown{0};
  static inline std::atomic<std::int64_t> failures{0};  // that still come
  static inline std::atomic<bool> has_failed{false};

  static void arm(std::int64_t number, std::int64_t many = 1) {
    has_failed = false;
    failures = many;
    countdown = number;
  }
  static void disarm() { countdown = 0; }
  static bool fails_now() noexcept {
    if (countdown.load(std::memory_order_relaxed) <= 0) return false;
    if (countdown.fetch_sub(1) > 1) return false;
    countdown.store(failures.fetch_sub(1) > 1 ? 1 : 0);
    has_failed = true;
    return true;
  }
};

}  // namespace peakline::testing
