// The blocks that are alive, and what they count for.
#pragma once

#include <cstdint>
#include <utility>

#include <peakline/address_map.h>

namespace peakline::capture {

// Every consumer of what observers see keeps one: the recording on the thread that writes it, a
// drop-in under its lock. Two things are the consumer's own: what else it knows of a `Block` (which
// has an `address` and `bytes`), and what it counts: `counts.book(block, +1)` when a block comes,
// `counts.book(block, -1)` when it goes. Pointers hold until the next add or remove. Not thread-safe.
template <class Block, class Counts>
class BlockBook {
 public:
  BlockBook() = default;
  explicit BlockBook(Counts made) : counts(std::move(made)) {}

  // Null: nothing is there, or nobody knows of it.
  [[nodiscard]] Block* find(std::uint64_t address) noexcept { return blocks_.find(address); }

  // Nothing may be at its address.
  Block& add(Block block) {
    counts.book(block, +1);
    return blocks_.insert(std::move(block));
  }
  void remove(const Block& block) {
    counts.book(block, -1);
    blocks_.erase(&block);
  }
  // Lets `change(block)` alter anything but the address.
  template <class Change>
  void update(Block& block, Change change) {
    counts.book(block, -1);
    change(block);
    counts.book(block, +1);
  }

  template <class F>
  void for_each(F&& f) const {
    blocks_.for_each(std::forward<F>(f));
  }

  Counts counts;

 private:
  AddressMap<Block> blocks_;
};

// Counts nothing but the sum.
struct TotalBytes {
  std::int64_t total = 0;

  template <class Block>
  void book(const Block& block, std::int64_t sign) noexcept {
    total += sign * block.bytes;
  }
};

}  // namespace peakline::capture
