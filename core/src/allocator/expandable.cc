// Segments that grow: address space for the whole device is reserved once per stream and pool, and
// memory is mapped into it in pages of the pool's segment size.
#include <algorithm>

#include "allocator/simulator.h"

namespace peakline {

// The room a free block has: its own bytes, and the unmapped ones right behind it.
std::uint64_t CachingAllocator::Impl::expandable_size(const CacheBlock& block) const {
  if (block.next == kNoBlock || blocks_[block.next].mapped) return block.size;
  return block.size + blocks_[block.next].size;
}

BlockIndex CachingAllocator::Impl::allocate_expandable(const Request& request) {
  BlockIndex index = find_room(request);
  if (index == kNoBlock) return kNoBlock;
  if (!blocks_[index].mapped && !map_block(index, std::min(blocks_[index].size, request.size))) {
    return kNoBlock;
  }
  // A free block with unmapped ones behind it: mapping the next one joins the two.
  while (blocks_[index].size < request.size) {
    const BlockIndex next = blocks_[index].next;
    const std::uint64_t missing = request.size - blocks_[index].size;
    if (!map_block(next, std::min(missing, blocks_[next].size))) return kNoBlock;
    index = next;
  }
  erase_free(index);
  return index;
}

// The lowest place of the stream that can be made large enough by mapping memory.
BlockIndex CachingAllocator::Impl::find_room(const Request& request) {
  for (const auto& [address, unmapped] : request.home->unmapped) {
    const BlockIndex before = blocks_[unmapped].previous;
    const bool takes_before = before != kNoBlock && blocks_[before].is_available();
    const BlockIndex index = takes_before ? before : unmapped;
    if (has_room(index, request.size)) return index;
  }
  return new_expandable_segment(request);
}

bool CachingAllocator::Impl::has_room(BlockIndex index, std::uint64_t size) const {
  std::uint64_t bytes = 0;
  while (bytes < size && index != kNoBlock && blocks_[index].is_available()) {
    bytes += blocks_[index].size;
    index = blocks_[index].next;
  }
  return bytes >= size;
}

// Addresses for a new segment: an eighth more than the device has, for pages that move to the end,
// or what the settings say.
std::uint64_t CachingAllocator::Impl::segment_reserve(std::uint64_t least) const {
  const auto total = static_cast<std::uint64_t>(device.total().raw());
  const std::uint64_t usual = total + total / 8;
  if (config.reserve_fraction) {
    const double share = *config.reserve_fraction * static_cast<double>(total);
    return std::min(static_cast<std::uint64_t>(share), usual);
  }
  if (config.reserve_bytes) {
    return std::min(static_cast<std::uint64_t>(config.reserve_bytes->raw()), usual);
  }
  return std::max(usual, least);
}

BlockIndex CachingAllocator::Impl::new_expandable_segment(const Request& request) {
  ExpandableSegment segment;
  segment.page = request.home->is_small
                     ? kSmallBuffer
                     : static_cast<std::uint64_t>(config.large_segment_size.raw());
  const std::uint64_t reserve = segment_reserve(request.size);
  const std::uint64_t pages = (reserve + segment.page - 1) / segment.page;
  segment.size = pages * segment.page;
  if (request.size > segment.size) return kNoBlock;  // a block lies in one segment
  segment.address = device.reserve_addresses(Bytes(static_cast<std::int64_t>(segment.size))).raw();
  auto number = static_cast<std::uint32_t>(segments_.size());
  if (free_segments_.empty()) {
    segments_.push_back(segment);
  } else {
    number = free_segments_.back();
    free_segments_.pop_back();
    segments_[number] = segment;
  }
  const BlockIndex index = blocks_.add();
  CacheBlock& block = blocks_[index];
  block.address = segment.address;
  block.size = segment.size;
  block.order = order_of_segment(block.address, block.size);
  block.segment = number;
  block.home = request.home;
  block.mapped = false;
  request.home->unmapped.emplace(block.address, index);
  return index;
}

// A new block in the same segment as `of`, linked to nothing yet.
BlockIndex CachingAllocator::Impl::add_piece(BlockIndex of, std::uint64_t address,
                                             std::uint64_t size) {
  const BlockIndex index = blocks_.add();
  const CacheBlock& source = blocks_[of];
  CacheBlock& block = blocks_[index];
  block.order = order_of_piece(source);
  block.address = address;
  block.size = size;
  block.segment = source.segment;
  block.home = source.home;
  return index;
}

// Maps at least the first `size` bytes of an unmapped block, in whole pages, and frees them for
// use.
bool CachingAllocator::Impl::map_block(BlockIndex index, std::uint64_t size) {
  const std::uint64_t page = segments_[blocks_[index].segment].page;
  const std::uint64_t mapped = (size + page - 1) / page * page;
  if (!device.map(Bytes(static_cast<std::int64_t>(mapped)))) return false;
  const BlockPool& pool = blocks_[index].home->pool;
  auto& unmapped = blocks_[index].home->unmapped;
  const std::uint64_t address = blocks_[index].address;
  unmapped.erase(address);
  blocks_[index].mapped = true;
  if (mapped < blocks_[index].size) {
    const BlockIndex rest = add_piece(index, address + mapped, blocks_[index].size - mapped);
    CacheBlock& block = blocks_[index];
    blocks_[rest].mapped = false;
    blocks_[rest].previous = index;
    blocks_[rest].next = block.next;
    if (block.next != kNoBlock) blocks_[block.next].previous = rest;
    block.next = rest;
    block.size = mapped;
    unmapped.emplace(blocks_[rest].address, rest);
  }
  try_merge(index, blocks_[index].previous);
  try_merge(index, blocks_[index].next);
  insert_free(index);
  reserved_ += mapped;
  increase(stats.reserved_bytes, pool.is_small, mapped);
  ++stats.num_device_alloc;
  report(SegmentChange::Kind::kMap, blocks_[index], address, mapped);
  return true;
}

// Unmaps the whole pages inside a free block; what is left at its ends stays free.
void CachingAllocator::Impl::unmap_block(BlockIndex index) {
  const ExpandableSegment& segment = segments_[blocks_[index].segment];
  const std::uint64_t offset = blocks_[index].address - segment.address;
  const std::uint64_t end_offset = offset + blocks_[index].size;
  const std::uint64_t first = (offset + segment.page - 1) / segment.page * segment.page;
  const std::uint64_t last = end_offset / segment.page * segment.page;
  if (first >= last) return;
  erase_free(index);
  const BlockPool& pool = blocks_[index].home->pool;
  if (first > offset) {
    const BlockIndex before = add_piece(index, blocks_[index].address, first - offset);
    blocks_[before].previous = blocks_[index].previous;
    blocks_[before].next = index;
    if (blocks_[before].previous != kNoBlock) blocks_[blocks_[before].previous].next = before;
    blocks_[index].previous = before;
    insert_free(before);
  }
  if (end_offset > last) {
    const BlockIndex after = add_piece(index, segment.address + last, end_offset - last);
    blocks_[after].previous = index;
    blocks_[after].next = blocks_[index].next;
    if (blocks_[after].next != kNoBlock) blocks_[blocks_[after].next].previous = after;
    blocks_[index].next = after;
    insert_free(after);
  }
  CacheBlock& block = blocks_[index];
  const std::uint64_t address = segment.address + first;
  const std::uint64_t unmapped = last - first;
  block.address = address;
  block.size = unmapped;
  block.mapped = false;
  try_merge(index, block.previous);
  try_merge(index, blocks_[index].next);
  blocks_[index].home->unmapped.emplace(blocks_[index].address, index);
  device.unmap(Bytes(static_cast<std::int64_t>(unmapped)));
  reserved_ -= unmapped;
  decrease(stats.reserved_bytes, pool.is_small, unmapped);
  if (PrivatePool* owner = private_pool(pool.owner)) --owner->device_allocs;
  ++stats.num_device_free;
  report(SegmentChange::Kind::kUnmap, blocks_[index], address, unmapped);
}

// Gives the address space of an entirely unmapped segment back.
void CachingAllocator::Impl::release_expandable(BlockIndex index) {
  const CacheBlock block = blocks_[index];
  if (block.mapped) return;
  const ExpandableSegment& segment = segments_[block.segment];
  block.home->unmapped.erase(block.address);
  device.release_addresses(Address(segment.address),
                           Bytes(static_cast<std::int64_t>(segment.size)));
  free_segments_.push_back(block.segment);
  blocks_.remove(index);
}

}  // namespace peakline
