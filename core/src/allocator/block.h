// Blocks: the pieces that segments are cut into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace peakline {

struct StreamCache;

using BlockIndex = std::uint32_t;
inline constexpr BlockIndex kNoBlock = 0xffffffff;

// One piece of a segment. Its neighbours are the pieces before and after it; a segment that is not
// split is one block without neighbours.
//
//   free ──allocate──> allocated ──free──> free
//                          └──free, used on other streams──> waiting ──done──> free
struct CacheBlock {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::uint64_t requested = 0;
  std::uint64_t order = 0;      // its place among equals, see Impl::key_of
  std::int64_t age_base = 0;    // the pool's search count when it became free
  StreamCache* home = nullptr;  // the pool and stream it belongs to
  BlockIndex previous = kNoBlock;
  BlockIndex next = kNoBlock;
  std::uint32_t segment = kNoBlock;  // which expandable segment; kNoBlock: none
  std::uint32_t events = 0;          // streams it waits for
  bool allocated = false;
  bool mapped = true;     // backed by memory; false only inside expandable segments
  bool has_uses = false;  // recorded on other streams, see Impl::uses_
  bool in_use = false;    // of the table: not on its free list

  [[nodiscard]] bool is_split() const noexcept { return previous != kNoBlock || next != kNoBlock; }
  [[nodiscard]] bool is_expandable() const noexcept { return segment != kNoBlock; }
  // Free: nobody holds it, nobody waits for it.
  [[nodiscard]] bool is_available() const noexcept {
    return !allocated && events == 0 && !has_uses;
  }
};

// Blocks by number. Numbers are reused; references die when a block is added.
class BlockTable {
 public:
  BlockIndex add() {
    if (free_.empty()) {
      blocks_.emplace_back();
      blocks_.back().in_use = true;
      return static_cast<BlockIndex>(blocks_.size() - 1);
    }
    const BlockIndex index = free_.back();
    free_.pop_back();
    blocks_[index] = CacheBlock{};
    blocks_[index].in_use = true;
    return index;
  }
  void remove(BlockIndex index) {
    blocks_[index].in_use = false;
    free_.push_back(index);
  }

  [[nodiscard]] CacheBlock& operator[](BlockIndex index) noexcept { return blocks_[index]; }
  [[nodiscard]] const CacheBlock& operator[](BlockIndex index) const noexcept {
    return blocks_[index];
  }
  [[nodiscard]] std::size_t capacity() const noexcept { return blocks_.size(); }

 private:
  std::vector<CacheBlock> blocks_;
  std::vector<BlockIndex> free_;
};

}  // namespace peakline
