// From the address of an allocation to its block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace peakline {

// A hash table with linear probing and no tombstones: erasing moves later entries back. Address 0
// is never stored. Memory is linear in the largest number of entries.
class AddressMap {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;

  AddressMap() : entries_(kSmallest) {}

  void insert(std::uint64_t address, std::uint32_t block) {
    if ((size_ + 1) * 2 > entries_.size()) grow();
    ++size_;
    place(address, block);
  }

  [[nodiscard]] std::uint32_t find(std::uint64_t address) const noexcept {
    for (std::size_t i = home(address);; i = (i + 1) & (entries_.size() - 1)) {
      if (entries_[i].address == address) return entries_[i].block;
      if (entries_[i].address == 0) return kNone;
    }
  }

  // The block at `address`, which is in the map no more; kNone when it was not.
  std::uint32_t take(std::uint64_t address) noexcept {
    const std::size_t mask = entries_.size() - 1;
    std::size_t hole = home(address);
    while (entries_[hole].address != address) {
      if (entries_[hole].address == 0) return kNone;
      hole = (hole + 1) & mask;
    }
    const std::uint32_t block = entries_[hole].block;
    --size_;
    for (std::size_t i = (hole + 1) & mask; entries_[i].address != 0; i = (i + 1) & mask) {
      // An entry may move into the hole unless that lies before its home.
      if (((i - home(entries_[i].address)) & mask) < ((i - hole) & mask)) continue;
      entries_[hole] = entries_[i];
      hole = i;
    }
    entries_[hole].address = 0;
    return block;
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  static constexpr std::size_t kSmallest = 256;
  struct Entry {
    std::uint64_t address = 0;
    std::uint32_t block = 0;
  };

  [[nodiscard]] std::size_t home(std::uint64_t address) const noexcept {
    // The top bits of the product depend on all bits of the address.
    return static_cast<std::size_t>(((address >> 9) * 0x9E3779B97F4A7C15ull) >> shift_);
  }

  void place(std::uint64_t address, std::uint32_t block) noexcept {
    std::size_t i = home(address);
    while (entries_[i].address != 0) i = (i + 1) & (entries_.size() - 1);
    entries_[i] = {address, block};
  }

  void grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    --shift_;
    for (const Entry& entry : old) {
      if (entry.address != 0) place(entry.address, entry.block);
    }
  }

  std::vector<Entry> entries_;
  unsigned shift_ = 56;  // 64 less the bits of entries_.size()
  std::size_t size_ = 0;
};

}  // namespace peakline
