// Private pools as they were: what cudagraph trees ask for before they record another path.
#include <algorithm>

#include "allocator/simulator.h"

namespace peakline {

// The first mapped block of each segment of a pool.
std::vector<BlockIndex> CachingAllocator::Impl::heads_of(PoolId pool) const {
  std::vector<BlockIndex> heads;
  for (BlockIndex i = 0; i < blocks_.capacity(); ++i) {
    const CacheBlock& block = blocks_[i];
    if (!block.in_use || !block.mapped || block.home->pool.owner != pool) continue;
    if (block.previous == kNoBlock || !blocks_[block.previous].mapped) heads.push_back(i);
  }
  std::ranges::sort(heads, {}, [this](BlockIndex i) { return blocks_[i].address; });
  return heads;
}

std::optional<PoolCheckpoint> CachingAllocator::Impl::checkpoint_pool(PoolId pool) {
  if (private_pool(pool) == nullptr) return std::nullopt;
  PoolCheckpoint checkpoint{pool, {}};
  for (const BlockIndex head : heads_of(pool)) {
    PoolCheckpoint::Segment& segment = checkpoint.segments.emplace_back();
    segment.address = Address(blocks_[head].address);
    for (BlockIndex at = head; at != kNoBlock && blocks_[at].mapped; at = blocks_[at].next) {
      segment.pieces.push_back(
          {Bytes(static_cast<std::int64_t>(blocks_[at].size)), blocks_[at].allocated});
    }
  }
  return checkpoint;
}

// Everything in the pool is freed, each segment cut as it was, and what was free then freed again.
std::optional<PoolRestored> CachingAllocator::Impl::restore_pool(const PoolCheckpoint& checkpoint) {
  if (private_pool(checkpoint.pool) == nullptr) return std::nullopt;
  PoolRestored restored;
  for (const BlockIndex head : heads_of(checkpoint.pool)) {
    for (BlockIndex at = head; at != kNoBlock && blocks_[at].mapped; at = blocks_[at].next) {
      if (blocks_[at].allocated) restored.freed.emplace_back(blocks_[at].address);
    }
  }
  for (const Address address : restored.freed) free(address);
  synchronize();
  process_events();
  const std::vector<BlockIndex> heads = heads_of(checkpoint.pool);
  for (const PoolCheckpoint::Segment& segment : checkpoint.segments) {
    const auto head = std::ranges::find(heads, segment.address.raw(),
                                        [this](BlockIndex i) { return blocks_[i].address; });
    if (head == heads.end() || !restore_segment(*head, segment, restored)) return std::nullopt;
  }
  return restored;
}

bool CachingAllocator::Impl::restore_segment(BlockIndex head,
                                             const PoolCheckpoint::Segment& segment,
                                             PoolRestored& restored) {
  std::vector<Address> unused;
  BlockIndex at = head;
  for (const PoolCheckpoint::Piece& piece : segment.pieces) {
    const auto size = static_cast<std::uint64_t>(piece.bytes.raw());
    if (at == kNoBlock || !blocks_[at].mapped || blocks_[at].size < size) return false;
    Request request{};
    request.requested = request.size = size;
    request.home = blocks_[at].home;
    erase_free(at);
    const Allocation got = hand_out(at, request, blocks_[at].size > size);
    if (piece.allocated) {
      restored.created.push_back(got);
    } else {
      unused.push_back(got.address);
    }
    at = blocks_[allocated_.find(got.address.raw())->block].next;
  }
  for (const Address address : unused) free(address);
  return true;
}

void CachingAllocator::Impl::empty_pool(PoolId pool) {
  const PrivatePool* const existing = private_pool(pool);
  if (existing == nullptr) return;
  release_blocks(existing->small);
  release_blocks(static_cast<std::uint16_t>(existing->small + 1));
  if (existing->holders > 0 || existing->device_allocs > 0) return;
  std::erase(freeable_pools_, pool);
  private_pools_.erase(pool);
}

}  // namespace peakline
