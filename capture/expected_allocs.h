// What each thread will allocate in a step that is like the one before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace peakline::capture {

// Immutable once others see it.
class ExpectedAllocs {
 public:
  void add(std::uint16_t thread, std::uint64_t size, std::uint8_t device) {
    if (thread >= threads_.size()) threads_.resize(thread + std::size_t{1});
    threads_[thread].push_back(pack(size, device));
  }
  // The thread's allocations of a step, in order, each as pack() says it.
  [[nodiscard]] std::span<const std::uint64_t> of(std::uint16_t thread) const noexcept {
    if (thread >= threads_.size()) return {};
    return threads_[thread];
  }
  static std::uint64_t pack(std::uint64_t size, std::uint8_t device) noexcept {
    return size << 8 | device;
  }

 private:
  std::vector<std::vector<std::uint64_t>> threads_;
};

}  // namespace peakline::capture
