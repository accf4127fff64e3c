// What each thread will allocate in a step that is like the one before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace peakline::capture {

// Immutable once others see it.
class ExpectedAllocs {
 public:
  void add(std::uint16_t thread, std::uint64_t size, std::uint8_t device) {
    if (thread >= threads_.size()) threads_.resize(thread + std::size_t{1});
    threads_[thread].push_back(pack(size, device));
  }
  // Whether the thread's allocation number `index` of a step, from 0, is as it was.
  [[nodiscard]] bool has(std::uint16_t thread, std::size_t index, std::uint64_t size,
                         std::uint8_t device) const noexcept {
    return thread < threads_.size() && index < threads_[thread].size() &&
           threads_[thread][index] == pack(size, device);
  }

 private:
  static std::uint64_t pack(std::uint64_t size, std::uint8_t device) noexcept {
    return size << 8 | device;
  }
  std::vector<std::vector<std::uint64_t>> threads_;
};

}  // namespace peakline::capture
