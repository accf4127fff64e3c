// What is at an address now. Open addressing with linear probing: one cache line a lookup.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace peakline {

// `Entry` has an `address`; 0 is never in the map. Pointers hold until the next insert or erase.
// Memory is linear in the largest number of entries. Not thread-safe.
template <class Entry>
class AddressMap {
 public:
  AddressMap() : slots_(kFirstSize) {}

  [[nodiscard]] const Entry* find(std::uint64_t address) const noexcept {
    for (std::size_t i = home(address);; i = next(i)) {
      if (slots_[i].address == 0) return nullptr;
      if (slots_[i].address == address) return &slots_[i];
    }
  }
  [[nodiscard]] Entry* find(std::uint64_t address) noexcept {
    return const_cast<Entry*>(std::as_const(*this).find(address));
  }

  // Its address must not be in the map.
  Entry& insert(Entry entry) {
    if ((used_ + 1) * 2 > slots_.size()) grow();
    ++used_;
    return place(std::move(entry));
  }

  void erase(const Entry* entry) noexcept {
    std::size_t hole = static_cast<std::size_t>(entry - slots_.data());
    // Entries that probed past the hole move into it, so no search ever stops too early.
    for (std::size_t i = next(hole); slots_[i].address != 0; i = next(i)) {
      const std::size_t wanted = home(slots_[i].address);
      const bool reaches_hole = ((i - wanted) & mask()) >= ((i - hole) & mask());
      if (!reaches_hole) continue;
      slots_[hole] = std::move(slots_[i]);
      hole = i;
    }
    slots_[hole] = Entry{};
    --used_;
  }

  template <class F>
  void for_each(F&& f) const {
    for (const Entry& entry : slots_) {
      if (entry.address != 0) f(entry);
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return used_; }

 private:
  static constexpr unsigned kFirstBits = 8;
  static constexpr std::size_t kFirstSize = std::size_t{1} << kFirstBits;

  [[nodiscard]] std::size_t mask() const noexcept { return slots_.size() - 1; }
  [[nodiscard]] std::size_t next(std::size_t i) const noexcept { return (i + 1) & mask(); }
  // The top bits of the product depend on all bits of the address.
  [[nodiscard]] std::size_t home(std::uint64_t address) const noexcept {
    return static_cast<std::size_t>((address * 0x9E3779B97F4A7C15U) >> shift_);
  }
  Entry& place(Entry entry) {
    std::size_t i = home(entry.address);
    while (slots_[i].address != 0) i = next(i);
    return slots_[i] = std::move(entry);
  }
  void grow() {
    std::vector<Entry> old(slots_.size() * 2);
    old.swap(slots_);
    --shift_;
    for (Entry& entry : old) {
      if (entry.address != 0) place(std::move(entry));
    }
  }

  std::vector<Entry> slots_;
  unsigned shift_ = 64 - kFirstBits;  // 64 less the bits of slots_.size()
  std::size_t used_ = 0;
};

}  // namespace peakline
