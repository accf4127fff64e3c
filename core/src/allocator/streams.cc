// Blocks that are used on other streams, and private pools of CUDA graphs.
#include <algorithm>

#include "allocator/simulator.h"

namespace peakline {

bool CachingAllocator::Impl::record_stream(Address address, StreamId stream) {
  const HandedOut* handed_out = allocated_.find(address.raw());
  if (handed_out == nullptr) return false;
  const BlockIndex index = handed_out->block;
  const std::uint32_t slot = slot_of(stream);
  CacheBlock& block = blocks_[index];
  if (slot == block.home->stream) return true;  // its own stream is in order anyway
  block.has_uses = true;
  Uses& uses = uses_[index];
  const auto add = [slot](std::vector<std::uint32_t>& to) {
    if (std::ranges::find(to, slot) == to.end()) to.push_back(slot);
  };
  add(uses.streams);
  if (captures()) add(uses.captured);
  return true;
}

// An event on every stream that used the freed block: it is free when all of them have happened.
void CachingAllocator::Impl::insert_events(BlockIndex index) {
  const auto it = uses_.find(index);
  for (const std::uint32_t slot : it->second.streams) {
    events_[slot].blocks.push_back(index);
    ++blocks_[index].events;
  }
  uses_.erase(it);
  blocks_[index].has_uses = false;
  if (blocks_[index].events > 0) waiting_[blocks_[index].address] = index;
}

void CachingAllocator::Impl::finish_event(BlockIndex index) {
  if (--blocks_[index].events > 0) return;
  waiting_.erase(blocks_[index].address);
  free_block(index);
}

void CachingAllocator::Impl::stream_done(StreamId stream) {
  const auto it = events_.find(slot_of(stream));
  if (it != events_.end()) it->second.done = it->second.blocks.size();
}

void CachingAllocator::Impl::synchronize() {
  for (auto& [slot, events] : events_) events.done = events.blocks.size();
}

// Before an allocation: frees the blocks whose streams are known to be done.
void CachingAllocator::Impl::process_events() {
  free_deferred();
  if (policy == StreamPolicy::kNextAllocation) synchronize();
  for (auto it = events_.begin(); it != events_.end();) {
    StreamEvents& events = it->second;
    for (; events.done > 0; --events.done) {
      const BlockIndex index = events.blocks.front();
      events.blocks.pop_front();
      finish_event(index);
    }
    it = events.blocks.empty() ? events_.erase(it) : std::next(it);
  }
}

// Frees that waited for the end of a capture: uses recorded inside it are over.
void CachingAllocator::Impl::free_deferred() {
  for (const BlockIndex index : std::exchange(deferred_, {})) {
    Uses& uses = uses_[index];
    std::erase_if(uses.streams, [&](std::uint32_t slot) {
      return std::ranges::find(uses.captured, slot) != uses.captured.end();
    });
    waiting_.erase(blocks_[index].address);
    insert_events(index);
    if (blocks_[index].events == 0) free_block(index);
  }
}

void CachingAllocator::Impl::synchronize_and_free() {
  ++stats.num_sync_all_streams;
  free_deferred();
  synchronize();
  process_events();
}

bool CachingAllocator::Impl::complete_free(Address address) {
  const auto it = waiting_.find(address.raw());
  if (it == waiting_.end()) return false;
  const BlockIndex index = it->second;
  waiting_.erase(it);
  std::erase(deferred_, index);
  uses_.erase(index);
  for (auto stream = events_.begin(); stream != events_.end();) {
    StreamEvents& events = stream->second;
    for (std::size_t i = 0; i < events.blocks.size();) {
      if (events.blocks[i] != index) {
        ++i;
        continue;
      }
      events.blocks.erase(events.blocks.begin() + static_cast<std::ptrdiff_t>(i));
      if (i < events.done) --events.done;
    }
    stream = events.blocks.empty() ? events_.erase(stream) : std::next(stream);
  }
  blocks_[index].events = 0;
  blocks_[index].has_uses = false;
  free_block(index);
  return true;
}

CachingAllocator::Impl::PrivatePool* CachingAllocator::Impl::private_pool(PoolId pool) {
  if (pool == PoolId{}) return nullptr;
  const auto it = private_pools_.find(pool);
  return it == private_pools_.end() ? nullptr : &it->second;
}

bool CachingAllocator::Impl::retain_pool(PoolId pool) {
  if (pool == PoolId{}) return false;
  if (PrivatePool* existing = private_pool(pool)) {
    if (existing->holders == 0) return false;  // let go already: it only waits to be emptied
    ++existing->holders;
    return true;
  }
  // CacheBlock pools are numbered in 16 bits, and numbers of pools that are gone are not reused.
  if (pools_.size() + 2 > 0xffff) return false;
  PrivatePool made;
  made.small = static_cast<std::uint16_t>(pools_.size());
  pools_.push_back(std::make_unique<BlockPool>(true, pool));
  pools_.push_back(std::make_unique<BlockPool>(false, pool));
  private_pools_.emplace(pool, made);
  return true;
}

bool CachingAllocator::Impl::begin_pool(PoolId pool, std::function<bool(StreamId)> filter,
                                        PoolUse use) {
  if (std::ranges::find(captures_, pool, &Capture::pool) != captures_.end()) return false;
  if (!retain_pool(pool)) return false;
  captures_.push_back({pool, std::move(filter), use});
  return true;
}

bool CachingAllocator::Impl::captures() const noexcept {
  if (rules_.mem_pool_captures) return !captures_.empty();
  return std::ranges::find(captures_, PoolUse::kGraphCapture, &Capture::use) != captures_.end();
}

// Where a MemPool is told from a capture, so is a stream that is not captured.
bool CachingAllocator::Impl::captures(StreamId stream) const {
  if (rules_.mem_pool_captures) return !captures_.empty();
  return std::ranges::any_of(captures_, [stream](const Capture& capture) {
    return capture.use == PoolUse::kGraphCapture && (!capture.filter || capture.filter(stream));
  });
}

bool CachingAllocator::Impl::end_pool(PoolId pool) {
  const auto it = std::ranges::find(captures_, pool, &Capture::pool);
  if (it == captures_.end()) return false;
  captures_.erase(it);
  return true;
}

bool CachingAllocator::Impl::release_pool(PoolId pool) {
  PrivatePool* const existing = private_pool(pool);
  if (existing == nullptr || existing->holders == 0) return false;
  const bool is_filled = std::ranges::find(captures_, pool, &Capture::pool) != captures_.end();
  if (is_filled && existing->holders == 1) return false;  // a capture holds what it fills
  if (--existing->holders == 0) freeable_pools_.push_back(pool);
  return true;
}

}  // namespace peakline
