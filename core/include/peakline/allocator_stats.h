// The allocator's statistics, under the names of torch.cuda.memory_stats().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <peakline/allocator_config.h>

namespace peakline {

// One counted quantity.
struct Stat {
  std::int64_t current = 0;
  std::int64_t peak = 0;       // since the start, or the last reset_peak()
  std::int64_t allocated = 0;  // everything ever added, since the start or reset_accumulated()
  std::int64_t at_reset = 0;   // what `current` was then

  // Everything ever taken away, likewise. Not counted but derived: there are many statistics, and
  // every free touches most of them.
  [[nodiscard]] std::int64_t freed() const noexcept { return at_reset + allocated - current; }
  void reset_accumulated() noexcept {
    allocated = 0;
    at_reset = current;
  }
  void increase(std::int64_t amount) noexcept {
    current += amount;
    peak = current > peak ? current : peak;
    allocated += amount;
  }
  void decrease(std::int64_t amount) noexcept { current -= amount; }
  friend bool operator==(const Stat&, const Stat&) = default;
};

// Everything at once, of the small pool, of the large pool.
enum class StatPool : std::uint8_t { kAll, kSmall, kLarge };
using PoolStats = std::array<Stat, 3>;

struct AllocatorStats {
  PoolStats allocation;       // blocks the program holds
  PoolStats segment;          // segments from cudaMalloc
  PoolStats active;           // blocks in use: held, or waiting for another stream
  PoolStats inactive_split;   // free pieces of segments that are in use elsewhere
  PoolStats allocated_bytes;  // of `allocation`, and so on
  PoolStats reserved_bytes;   // taken from the device
  PoolStats active_bytes;
  PoolStats inactive_split_bytes;
  PoolStats requested_bytes;  // what the program asked for, of `active`
  Stat oversize_allocations;  // blocks of at least max_split_size
  Stat oversize_segments;
  std::int64_t num_alloc_retries = 0;
  std::int64_t num_ooms = 0;
  std::int64_t num_sync_all_streams = 0;
  std::int64_t num_device_alloc = 0;
  std::int64_t num_device_free = 0;
  std::int64_t num_oom_rejections = 0;
  std::int64_t max_split_size = -1;  // torch shows "no limit" as -1

  void reset_peak() noexcept;
  void reset_accumulated() noexcept;

  // Names and values as torch.cuda.memory_stats() lists them, sorted by name.
  [[nodiscard]] std::vector<std::pair<std::string, std::int64_t>> named(
      TorchVersion torch = {}) const;
};

}  // namespace peakline
