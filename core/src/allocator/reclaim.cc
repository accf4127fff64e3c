// Giving memory back to the driver: garbage collection, the retry after a failed allocation, and
// empty_cache.
#include <algorithm>

#include "allocator/simulator.h"

namespace peakline {

bool CachingAllocator::Impl::collects_garbage() const noexcept {
  return limit.has_value() && config.garbage_collection_threshold > 0.0;
}

// Returns unused large segments that have not been asked for longest, once more than the threshold
// is reserved. Rounds go on with the average age of what is left until enough came back.
void CachingAllocator::Impl::collect_garbage() {
  const auto threshold = static_cast<std::uint64_t>(config.garbage_collection_threshold *
                                                    static_cast<double>(limit->raw()));
  if (reserved_ <= threshold) return;
  const std::uint64_t target = reserved_ - threshold;
  const BlockPool& pool = *pools_[1];
  std::vector<BlockIndex> candidates;
  std::uint64_t total_age = 0;
  for (const std::uint32_t slot : stream_slots(pool)) {
    for (auto cursor = pool.streams[slot]->free.first(); !cursor.at_end(); cursor.advance()) {
      const BlockIndex index = block_of(cursor.key());
      if (blocks_[index].is_split()) continue;
      candidates.push_back(index);
      total_age += static_cast<std::uint64_t>(pool.searches - blocks_[index].age_base);
    }
  }
  std::uint64_t reclaimed = 0;
  bool freed_one = true;
  std::size_t left = candidates.size();
  while (reclaimed < target && freed_one && left > 0) {
    const double threshold_age = static_cast<double>(total_age) / static_cast<double>(left);
    freed_one = false;
    for (BlockIndex& index : candidates) {
      if (index == kNoBlock || blocks_[index].is_expandable()) continue;
      const std::int64_t age = pool.searches - blocks_[index].age_base;
      if (static_cast<double>(age) < threshold_age) continue;
      freed_one = true;
      reclaimed += blocks_[index].size;
      total_age -= static_cast<std::uint64_t>(age);
      --left;
      release_block(index);
      index = kNoBlock;
    }
  }
}

// With max_split_size set: returns one block that is large enough, or several of the largest until
// their sum is. Blocks that are too large to be split are always whole segments.
bool CachingAllocator::Impl::release_oversize(const Request& request) {
  if (config.max_split_size == AllocatorConfig::kUnlimited) return false;
  const FreeList& list = request.home->free;
  const std::uint64_t wanted = std::max(request.size, max_split_);
  FreeList::Cursor cursor = list.first_of_size(wanted);
  if (!cursor.at_end() && !blocks_[block_of(cursor.key())].is_expandable()) {
    release_block(block_of(cursor.key()));
    return true;
  }
  if (cursor.at_end()) {
    cursor = list.last();
  } else {
    cursor.retreat();
  }
  std::vector<BlockIndex> to_release;
  std::uint64_t total = 0;
  for (; !cursor.at_end() && total < wanted; cursor.retreat()) {
    const BlockIndex index = block_of(cursor.key());
    if (blocks_[index].size < max_split_) break;
    if (blocks_[index].is_expandable()) continue;
    total += blocks_[index].size;
    to_release.push_back(index);
  }
  for (const BlockIndex index : to_release) release_block(index);
  return total >= wanted;
}

// Waits for all streams, then returns every segment that is entirely free.
void CachingAllocator::Impl::release_cached(bool captures) {
  if (!captures) {
    synchronize_and_free();
    release_blocks(1);
    release_blocks(0);
  }
  // torch keeps these in a hash table that spreads ids by Fibonacci hashing, and walks its slots.
  std::ranges::sort(freeable_pools_, {},
                    [](PoolId id) { return id.raw() * 0x9E3779B97F4A7C15ull; });
  std::vector<PoolId> still_freeable;
  for (const PoolId id : freeable_pools_) {
    const PrivatePool& pool = private_pools_.at(id);
    release_blocks(pool.small);
    release_blocks(static_cast<std::uint16_t>(pool.small + 1));
    if (pool.device_allocs <= 0) {
      private_pools_.erase(id);
    } else {
      still_freeable.push_back(id);
    }
  }
  freeable_pools_ = std::move(still_freeable);
}

void CachingAllocator::Impl::empty_cache() { release_cached(captures()); }

// The slots of the streams that have something in `pool`, in the order of the streams' handles.
std::vector<std::uint32_t> CachingAllocator::Impl::stream_slots(const BlockPool& pool) const {
  std::vector<std::uint32_t> slots;
  for (std::uint32_t slot = 0; slot < pool.streams.size(); ++slot) {
    if (pool.streams[slot]) slots.push_back(slot);
  }
  const auto rank = [&](std::uint32_t slot) {
    const auto it = std::ranges::find(stream_order_, streams_[slot]);
    return std::pair(it - stream_order_.begin(), streams_[slot].raw());
  };
  std::ranges::sort(slots, {}, rank);
  return slots;
}

void CachingAllocator::Impl::set_stream_order(std::span<const StreamId> streams) {
  stream_order_.assign(streams.begin(), streams.end());
}

void CachingAllocator::Impl::release_blocks(std::uint16_t pool_index) {
  const BlockPool& pool = *pools_[pool_index];
  std::vector<BlockIndex> whole;
  std::vector<BlockIndex> expandable;
  for (const std::uint32_t slot : stream_slots(pool)) {
    for (auto cursor = pool.streams[slot]->free.first(); !cursor.at_end(); cursor.advance()) {
      const BlockIndex index = block_of(cursor.key());
      if (blocks_[index].is_expandable()) {
        expandable.push_back(index);
      } else if (!blocks_[index].is_split()) {
        whole.push_back(index);
      }
    }
  }
  for (const BlockIndex index : whole) release_block(index);
  for (const BlockIndex index : expandable) {
    unmap_block(index);
    if (!blocks_[index].is_split()) release_expandable(index);
  }
}

// Returns a whole free segment.
void CachingAllocator::Impl::release_block(BlockIndex index) {
  const CacheBlock block = blocks_[index];
  const BlockPool& pool = block.home->pool;
  ++stats.num_device_free;
  erase_free(index);
  blocks_.remove(index);
  device.release(Address(block.address), Bytes(static_cast<std::int64_t>(block.size)));
  reserved_ -= block.size;
  if (PrivatePool* owner = private_pool(pool.owner)) --owner->device_allocs;
  decrease(stats.segment, pool.is_small, 1);
  decrease(stats.reserved_bytes, pool.is_small, block.size);
  if (block.size >= max_split_) stats.oversize_segments.decrease(1);
  report(SegmentChange::Kind::kFree, block, block.address, block.size);
}

}  // namespace peakline
