// Why a recording ended before it was stopped.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <string_view>

namespace peakline::capture {

// Holds the first reason that it is given. Setting it takes no memory and no lock: it happens where
// there is none left, inside torch's calls, and on any thread.
class Fault {
 public:
  // False when there was one before.
  bool set(std::string_view why) noexcept {
    int none = kNone;
    if (!state_.compare_exchange_strong(none, kBeingSet, std::memory_order_acq_rel)) return false;
    size_ = std::min(why.size(), text_.size());
    std::copy_n(why.begin(), size_, text_.begin());
    state_.store(kSet, std::memory_order_release);
    return true;
  }
  [[nodiscard]] bool is_set() const noexcept {
    return state_.load(std::memory_order_acquire) != kNone;
  }
  // Empty while there is none.
  [[nodiscard]] std::string_view text() const noexcept {
    if (state_.load(std::memory_order_acquire) != kSet) return {};
    return {text_.data(), size_};
  }

 private:
  enum : int { kNone, kBeingSet, kSet };
  std::atomic<int> state_{kNone};
  std::array<char, 512> text_{};
  std::size_t size_ = 0;
};

}  // namespace peakline::capture
