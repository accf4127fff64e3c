#include "allocator/simulator.h"

#include <algorithm>
#include <cmath>

namespace peakline {
namespace {

// More than any device has, and far from any overflow.
constexpr std::uint64_t kLargestRequest = std::uint64_t{1} << 48;

constexpr std::uint64_t raw(Bytes bytes) { return static_cast<std::uint64_t>(bytes.raw()); }
constexpr Bytes bytes_of(std::uint64_t count) { return Bytes(static_cast<std::int64_t>(count)); }

}  // namespace

CachingAllocator::Impl::Impl(const AllocatorConfig& settings, DeviceModel& model)
    : config(settings),
      device(model),
      rules_(AllocatorRules::of(settings.torch)),
      max_split_(raw(settings.max_split_size)) {
  if (rules_.equal_blocks != AllocatorRules::EqualBlocks::kOldestBlock) address_mask_ = ~0ull;
  pools_.push_back(std::make_unique<BlockPool>(true, PoolId{}));
  pools_.push_back(std::make_unique<BlockPool>(false, PoolId{}));
  slot_of(StreamId{});
  if (config.max_split_size != AllocatorConfig::kUnlimited) {
    stats.max_split_size = config.max_split_size.raw();
  }
  if (config.memory_fraction < 1.0) limit = share_of_device(config.memory_fraction);
}

Bytes CachingAllocator::Impl::share_of_device(double fraction) const noexcept {
  const double bytes = std::max(0.0, fraction) * static_cast<double>(device.total().raw());
  return Bytes(static_cast<std::int64_t>(rules_.rounds_limit ? std::round(bytes) : bytes));
}

// The order of a new segment's first block.
std::uint64_t CachingAllocator::Impl::order_of_segment(std::uint64_t address,
                                                       std::uint64_t size) noexcept {
  switch (rules_.equal_blocks) {
    case AllocatorRules::EqualBlocks::kLowestAddress:
      return 0;
    case AllocatorRules::EqualBlocks::kOldestBlock:
      return next_order_ += kMinBlockSize;
    case AllocatorRules::EqualBlocks::kOldestSegment:
      break;
  }
  const std::uint64_t order = next_order_ - address;
  next_order_ += size;
  return order;
}

// The order of a block that is cut off another one.
std::uint64_t CachingAllocator::Impl::order_of_piece(const CacheBlock& source) noexcept {
  const bool by_block = rules_.equal_blocks == AllocatorRules::EqualBlocks::kOldestBlock;
  return by_block ? next_order_ += kMinBlockSize : source.order;
}

std::uint32_t CachingAllocator::Impl::slot_of(StreamId stream) {
  // Programs use few streams, which a look along the first ones finds soonest.
  const auto some = std::min<std::size_t>(streams_.size(), 8);
  for (std::uint32_t slot = 0; slot < some; ++slot) {
    if (streams_[slot] == stream) return slot;
  }
  const auto [it, is_new] =
      slots_.try_emplace(stream.raw(), static_cast<std::uint32_t>(streams_.size()));
  if (is_new) streams_.push_back(stream);
  return it->second;
}

BlockPool& CachingAllocator::Impl::pool_for(std::uint64_t size, StreamId stream) const {
  const std::size_t kind = size <= kSmallSize ? 0 : 1;
  // The capture that began last is asked first.
  for (auto it = captures_.rbegin(); it != captures_.rend(); ++it) {
    if (!it->filter || it->filter(stream)) {
      return *pools_[private_pools_.at(it->pool).small + kind];
    }
  }
  return *pools_[kind];
}

StreamCache& CachingAllocator::Impl::home_for(std::uint64_t size, StreamId stream) {
  BlockPool& pool =
      captures_.empty() ? *pools_[size <= kSmallSize ? 0 : 1] : pool_for(size, stream);
  return pool.of(slot_of(stream));
}

Allocation CachingAllocator::Impl::allocate(std::uint64_t requested, StreamId stream) {
  if (out_of_memory) out_of_memory.reset();
  if (!(events_.empty() && deferred_.empty()) && !captures(stream)) process_events();
  Request request{};
  request.requested = requested;
  const bool is_absurd = requested > kLargestRequest;
  request.size = is_absurd ? kLargestRequest : config.round_size(requested);
  request.home = &home_for(request.size, stream);
  if (is_absurd) return fail(request);
  BlockIndex index = find_free(request);
  if (index == kNoBlock) index = find_or_make(request, stream);
  if (index == kNoBlock) return fail(request);
  return hand_out(index, request, should_split(blocks_[index], request.size));
}

// The smallest free block that fits, and of equal ones the first.
BlockIndex CachingAllocator::Impl::find_free(Request& request) {
  if (collects_garbage()) ++request.home->pool.searches;
  FreeList::Cursor place = request.home->free.first_of_size(request.size);
  if (place.at_end()) return kNoBlock;
  BlockIndex index = block_of(place.key());
  if (blocks_[index].is_expandable()) {
    index = find_expandable_fit(place);
    if (index == kNoBlock) return kNoBlock;
  }
  const std::uint64_t size = blocks_[index].size;
  // A block too large to be split is for requests of about its own size only.
  if (request.size < max_split_ ? size >= max_split_
                                : size >= request.size + raw(config.max_non_split_rounding)) {
    return kNoBlock;
  }
  request.place = place;
  return index;
}

// The end of an expandable segment counts with the room it can grow into, so a larger block that
// cannot grow as far is the better fit.
BlockIndex CachingAllocator::Impl::find_expandable_fit(FreeList::Cursor& place) const {
  BlockIndex index = block_of(place.key());
  if (!config.expandable_segments) {
    do {
      place.advance();
      if (place.at_end()) return kNoBlock;
      index = block_of(place.key());
    } while (blocks_[index].is_expandable());
    return index;
  }
  while (blocks_[index].is_expandable()) {
    FreeList::Cursor next = place;
    next.advance();
    if (next.at_end()) break;
    const BlockIndex larger = block_of(next.key());
    if (expandable_size(blocks_[larger]) >= expandable_size(blocks_[index])) break;
    place = next;
    index = larger;
  }
  return index;
}

// No cached block fits: new memory, if need be after giving cached memory back.
BlockIndex CachingAllocator::Impl::find_or_make(Request& request, StreamId stream) {
  request.segment = config.segment_size(request.size);
  if (collects_garbage()) collect_garbage();
  BlockIndex index = new_segment(request);
  if (index != kNoBlock || request.rejected) return index;
  if (release_oversize(request)) {
    index = new_segment(request);
    if (index != kNoBlock || request.rejected) return index;
  }
  if (captures(stream)) return kNoBlock;  // which giving memory back would disturb
  release_cached(false);
  ++stats.num_alloc_retries;
  return new_segment(request);
}

// A whole new segment as one block that is in no list, or kNoBlock.
BlockIndex CachingAllocator::Impl::new_segment(Request& request) {
  const std::uint64_t wanted = reserved_ + request.segment;
  if (limit && wanted > raw(*limit)) return kNoBlock;
  // Not the limit that holds, which a program may have set since, but that of the settings; cut.
  if (config.reject_over_limit &&
      static_cast<double>(wanted) >
          config.memory_fraction * static_cast<double>(device.total().raw())) {
    request.rejected = true;
    ++stats.num_oom_rejections;
    return kNoBlock;
  }
  const BlockPool& pool = request.home->pool;
  if (config.expandable_segments) {
    const BlockIndex index = allocate_expandable(request);
    if (index != kNoBlock) {
      if (PrivatePool* owner = private_pool(pool.owner)) ++owner->device_allocs;
    }
    return index;
  }
  const std::optional<Address> address = device.allocate(bytes_of(request.segment));
  if (!address) return kNoBlock;
  const BlockIndex index = blocks_.add();
  CacheBlock& block = blocks_[index];
  block.address = address->raw();
  block.size = request.segment;
  block.order = order_of_segment(block.address, block.size);
  block.home = request.home;
  if (PrivatePool* owner = private_pool(pool.owner)) ++owner->device_allocs;
  reserved_ += block.size;
  increase(stats.segment, pool.is_small, 1);
  increase(stats.reserved_bytes, pool.is_small, block.size);
  if (block.size >= max_split_) stats.oversize_segments.increase(1);
  ++stats.num_device_alloc;
  report(SegmentChange::Kind::kAlloc, block, block.address, block.size);
  return index;
}

bool CachingAllocator::Impl::should_split(const CacheBlock& block, std::uint64_t size) const {
  const std::uint64_t rest = block.size - size;
  if (block.home->is_small || config.expandable_segments) return rest >= kMinBlockSize;
  return size < max_split_ && rest > kSmallSize;
}

// Cuts `size` bytes off the front; the rest goes (back) to its list. The front is a new block.
BlockIndex CachingAllocator::Impl::split(BlockIndex index, const Request& request) {
  const std::uint64_t size = request.size;
  const BlockIndex front_index = blocks_.add();
  CacheBlock& rest = blocks_[index];
  CacheBlock& front = blocks_[front_index];
  front.address = rest.address;
  front.size = size;
  front.order = order_of_piece(rest);
  front.segment = rest.segment;
  front.home = rest.home;
  front.previous = rest.previous;
  front.next = index;
  if (front.previous != kNoBlock) blocks_[front.previous].next = front_index;
  rest.previous = front_index;
  rest.address += size;
  rest.size -= size;
  rest.age_base = rest.home->pool.searches;
  if (request.place.at_end()) {
    rest.home->free.insert(key_of(rest, index));
  } else {
    rest.home->free.replace(request.place, key_of(rest, index));
  }
  return front_index;
}

Allocation CachingAllocator::Impl::hand_out(BlockIndex index, const Request& request, bool splits) {
  const bool small = request.home->is_small;
  const bool was_split = blocks_[index].is_split();
  const bool plain = !blocks_[index].is_expandable();
  if (splits) {
    const BlockIndex rest = index;
    index = split(index, request);
    if (plain && was_split) {
      decrease(stats.inactive_split_bytes, small, request.size);
    } else if (plain) {
      increase(stats.inactive_split_bytes, small, blocks_[rest].size);
      increase(stats.inactive_split, small, 1);
    }
  } else {
    if (!request.place.at_end()) request.home->free.erase(request.place);
    if (plain && was_split) {
      decrease(stats.inactive_split_bytes, small, blocks_[index].size);
      decrease(stats.inactive_split, small, 1);
    }
  }
  CacheBlock& block = blocks_[index];
  block.allocated = true;
  block.requested = request.requested;
  allocated_.insert({block.address, index});
  increase(stats.allocation, small, 1);
  increase(stats.allocated_bytes, small, block.size);
  increase(stats.active, small, 1);
  increase(stats.active_bytes, small, block.size);
  increase(stats.requested_bytes, small, block.requested);
  if (block.size >= max_split_) stats.oversize_allocations.increase(1);
  return {Address(block.address), bytes_of(block.size)};
}

Allocation CachingAllocator::Impl::fail(const Request& request) {
  if (!request.rejected) ++stats.num_ooms;
  OutOfMemoryInfo info;
  info.requested = bytes_of(request.requested);
  info.segment = bytes_of(request.segment);
  info.stream = streams_[request.home->stream];
  info.device_total = device.total();
  info.device_free = device.free();
  info.limit = limit;
  info.allocated = Bytes(stats.allocated_bytes[0].current);
  info.reserved = Bytes(stats.reserved_bytes[0].current);
  info.rejected = request.rejected;
  for (std::size_t i = 2; i < pools_.size(); ++i) {
    if (!pools_[i]) continue;
    for (const auto& cache : pools_[i]->streams) {
      if (!cache) continue;
      for (auto cursor = cache->free.first(); !cursor.at_end(); cursor.advance()) {
        info.private_pools += bytes_of(size_of(cursor.key()));
      }
    }
  }
  out_of_memory = info;
  return {};
}

bool CachingAllocator::Impl::free(Address address) {
  const HandedOut* handed_out = allocated_.find(address.raw());
  if (handed_out == nullptr) return false;
  const BlockIndex index = handed_out->block;
  allocated_.erase(handed_out);
  CacheBlock& block = blocks_[index];
  block.allocated = false;
  const bool small = block.home->is_small;
  decrease(stats.allocation, small, 1);
  decrease(stats.allocated_bytes, small, block.size);
  if (block.size >= max_split_) stats.oversize_allocations.decrease(1);
  if (!block.has_uses) {
    free_block(index);
  } else if (captures()) {
    deferred_.push_back(index);
    waiting_[block.address] = index;
  } else {
    insert_events(index);
  }
  return true;
}

// Puts a block that nobody uses into its list, joined with free neighbours.
void CachingAllocator::Impl::free_block(BlockIndex index) {
  CacheBlock& block = blocks_[index];
  StreamCache& home = *block.home;
  const bool small = home.is_small;
  decrease(stats.active, small, 1);
  decrease(stats.active_bytes, small, block.size);
  decrease(stats.requested_bytes, small, block.requested);
  std::int64_t split_blocks = 0;
  std::int64_t split_bytes = 0;
  // The key of a free neighbour is not erased but becomes the key of the joined block.
  std::optional<FreeKey> old_key;
  for (const BlockIndex neighbour : {block.previous, block.next}) {
    if (neighbour == kNoBlock) continue;
    const CacheBlock& other = blocks_[neighbour];
    if (!other.is_available() || !other.mapped) continue;
    if (old_key) home.free.erase(*old_key);
    old_key = key_of(other, neighbour);
    --split_blocks;
    split_bytes -= static_cast<std::int64_t>(other.size);
    join(index, neighbour);
  }
  block.age_base = home.pool.searches;
  if (old_key) {
    home.free.replace(*old_key, key_of(block, index));
  } else {
    home.free.insert(key_of(block, index));
  }
  // Free pages of expandable segments can always be returned, so they never count as split.
  if (block.is_expandable()) return;
  if (block.is_split()) {
    ++split_blocks;
    split_bytes += static_cast<std::int64_t>(block.size);
  }
  change(stats.inactive_split, small, split_blocks);
  change(stats.inactive_split_bytes, small, split_bytes);
}

// Joins `from` to its neighbour `into` when both are free and alike, and takes it out of its list.
void CachingAllocator::Impl::try_merge(BlockIndex into, BlockIndex from) {
  if (from == kNoBlock) return;
  const CacheBlock& source = blocks_[from];
  if (!source.is_available() || blocks_[into].mapped != source.mapped) return;
  if (source.mapped) {
    erase_free(from);
  } else {
    source.home->unmapped.erase(source.address);
  }
  join(into, from);
}

// Makes two neighbours one; `from` is gone.
void CachingAllocator::Impl::join(BlockIndex into, BlockIndex from) {
  CacheBlock& target = blocks_[into];
  const CacheBlock& source = blocks_[from];
  if (target.previous == from) {
    target.address = source.address;
    target.previous = source.previous;
    if (target.previous != kNoBlock) blocks_[target.previous].next = into;
  } else {
    target.next = source.next;
    if (target.next != kNoBlock) blocks_[target.next].previous = into;
  }
  target.size += source.size;
  blocks_.remove(from);
}

void CachingAllocator::Impl::insert_free(BlockIndex index) {
  CacheBlock& block = blocks_[index];
  block.age_base = block.home->pool.searches;
  block.home->free.insert(key_of(block, index));
}

void CachingAllocator::Impl::erase_free(BlockIndex index) {
  const CacheBlock& block = blocks_[index];
  block.home->free.erase(key_of(block, index));
}

void CachingAllocator::Impl::change(PoolStats& stat, bool small, std::int64_t amount) noexcept {
  if (amount > 0) increase(stat, small, static_cast<std::uint64_t>(amount));
  if (amount < 0) decrease(stat, small, static_cast<std::uint64_t>(-amount));
}

void CachingAllocator::Impl::report(SegmentChange::Kind kind, const CacheBlock& block,
                                    std::uint64_t address, std::uint64_t size) const {
  if (!on_segment) return;
  on_segment({kind, Address(address), bytes_of(size), streams_[block.home->stream],
              block.home->pool.owner});
}

}  // namespace peakline
