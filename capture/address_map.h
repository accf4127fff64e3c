// Which block is at an address now. Open addressing with linear probing: one cache line a lookup.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <peakline/ids.h>

namespace peakline::capture {

struct LiveBlock {
  std::uint64_t address = 0;  // 0: an empty slot
  std::uint64_t owner = 0;    // as in the last label
  std::int64_t bytes = 0;
  BlockId block;
  CategoryId category;
  bool made_by_model = false;
};

// Address 0 is never in it. Pointers hold until the next insert or erase. Not thread-safe.
class AddressMap {
 public:
  AddressMap() : slots_(kFirstSize) {}

  [[nodiscard]] LiveBlock* find(std::uint64_t address) noexcept {
    for (std::size_t i = home(address);; i = next(i)) {
      if (slots_[i].address == 0) return nullptr;
      if (slots_[i].address == address) return &slots_[i];
    }
  }

  // `address` must not be in the map.
  void insert(const LiveBlock& block) {
    if ((used_ + 1) * 2 > slots_.size()) grow();
    place(block);
    ++used_;
  }

  void erase(const LiveBlock* block) noexcept {
    std::size_t hole = static_cast<std::size_t>(block - slots_.data());
    // Entries that probed past the hole move into it, so no search ever stops too early.
    for (std::size_t i = next(hole); slots_[i].address != 0; i = next(i)) {
      const std::size_t wanted = home(slots_[i].address);
      const bool reaches_hole = ((i - wanted) & mask()) >= ((i - hole) & mask());
      if (!reaches_hole) continue;
      slots_[hole] = slots_[i];
      hole = i;
    }
    slots_[hole] = LiveBlock{};
    --used_;
  }

  [[nodiscard]] std::size_t size() const noexcept { return used_; }

 private:
  static constexpr std::size_t kFirstSize = 1024;

  [[nodiscard]] std::size_t mask() const noexcept { return slots_.size() - 1; }
  [[nodiscard]] std::size_t next(std::size_t i) const noexcept { return (i + 1) & mask(); }
  [[nodiscard]] std::size_t home(std::uint64_t address) const noexcept {
    return static_cast<std::size_t>((address * 0x9E3779B97F4A7C15U) >> 20) & mask();
  }
  void place(const LiveBlock& block) {
    std::size_t i = home(block.address);
    while (slots_[i].address != 0) i = next(i);
    slots_[i] = block;
  }
  void grow() {
    std::vector<LiveBlock> old(slots_.size() * 2);
    old.swap(slots_);
    for (const LiveBlock& block : old) {
      if (block.address != 0) place(block);
    }
  }

  std::vector<LiveBlock> slots_;
  std::size_t used_ = 0;
};

}  // namespace peakline::capture
