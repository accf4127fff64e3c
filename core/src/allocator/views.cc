// What can be seen of the allocator from outside.
#include <algorithm>

#include "allocator/simulator.h"

namespace peakline {
namespace {

constexpr Bytes bytes_of(std::uint64_t count) { return Bytes(static_cast<std::int64_t>(count)); }

BlockView view_of(const CacheBlock& block) {
  BlockView view;
  view.address = Address(block.address);
  view.bytes = bytes_of(block.size);
  view.requested = bytes_of(block.requested);
  view.state = block.allocated        ? BlockView::State::kAllocated
               : block.is_available() ? BlockView::State::kFree
                                      : BlockView::State::kAwaitingFree;
  return view;
}

}  // namespace

std::vector<SegmentView> CachingAllocator::Impl::segments() const {
  std::vector<SegmentView> views;
  for (BlockIndex i = 0; i < blocks_.capacity(); ++i) {
    const CacheBlock& head = blocks_[i];
    if (!head.in_use || !head.mapped) continue;
    if (head.previous != kNoBlock && blocks_[head.previous].mapped) continue;
    SegmentView& segment = views.emplace_back();
    segment.address = Address(head.address);
    segment.stream = streams_[head.home->stream];
    segment.pool = head.home->pool.owner;
    segment.is_large = !head.home->is_small;
    segment.is_expandable = head.is_expandable();
    for (BlockIndex at = i; at != kNoBlock && blocks_[at].mapped; at = blocks_[at].next) {
      const BlockView& block = segment.blocks.emplace_back(view_of(blocks_[at]));
      segment.bytes += block.bytes;
      if (block.state == BlockView::State::kAllocated) segment.allocated += block.bytes;
      if (block.state == BlockView::State::kFree) continue;
      segment.active += block.bytes;
      segment.requested += block.requested;
    }
  }
  std::ranges::sort(views, {}, &SegmentView::address);
  return views;
}

Bytes CachingAllocator::Impl::largest_free_block() const {
  std::uint64_t largest = 0;
  for (const auto& pool : pools_) {
    for (const auto& cache : pool->streams) {
      if (!cache || cache->free.size() == 0) continue;
      largest = std::max(largest, size_of(cache->free.last().key()));
    }
  }
  return bytes_of(largest);
}

void CachingAllocator::Impl::set_limit(std::optional<Bytes> bytes) { limit = bytes; }

CachingAllocator::CachingAllocator(const AllocatorConfig& config, DeviceModel& device)
    : impl_(std::make_unique<Impl>(config, device)) {}
CachingAllocator::~CachingAllocator() = default;
CachingAllocator::CachingAllocator(CachingAllocator&&) noexcept = default;
CachingAllocator& CachingAllocator::operator=(CachingAllocator&&) noexcept = default;

Allocation CachingAllocator::allocate(Bytes requested, StreamId stream) {
  return impl_->allocate(static_cast<std::uint64_t>(std::max<std::int64_t>(1, requested.raw())),
                         stream);
}
bool CachingAllocator::free(Address address) { return impl_->free(address); }
bool CachingAllocator::record_stream(Address address, StreamId stream) {
  return impl_->record_stream(address, stream);
}
void CachingAllocator::stream_done(StreamId stream) { impl_->stream_done(stream); }
void CachingAllocator::synchronize() { impl_->synchronize(); }
bool CachingAllocator::complete_free(Address address) { return impl_->complete_free(address); }
void CachingAllocator::set_stream_policy(StreamPolicy policy) { impl_->policy = policy; }
void CachingAllocator::empty_cache() { impl_->empty_cache(); }

void CachingAllocator::set_memory_fraction(double fraction) {
  if (!(fraction < 1.0)) {
    impl_->set_limit(std::nullopt);
    return;
  }
  impl_->set_limit(impl_->share_of_device(fraction));
}
void CachingAllocator::set_memory_limit(std::optional<Bytes> limit) { impl_->set_limit(limit); }
std::optional<Bytes> CachingAllocator::memory_limit() const { return impl_->limit; }

bool CachingAllocator::begin_pool(PoolId pool, std::function<bool(StreamId)> filter, PoolUse use) {
  return impl_->begin_pool(pool, std::move(filter), use);
}
bool CachingAllocator::end_pool(PoolId pool) { return impl_->end_pool(pool); }
bool CachingAllocator::retain_pool(PoolId pool) { return impl_->retain_pool(pool); }
bool CachingAllocator::release_pool(PoolId pool) { return impl_->release_pool(pool); }
void CachingAllocator::empty_pool(PoolId pool) { impl_->empty_pool(pool); }
std::optional<PoolCheckpoint> CachingAllocator::checkpoint_pool(PoolId pool) {
  return impl_->checkpoint_pool(pool);
}
std::optional<PoolRestored> CachingAllocator::restore_pool(const PoolCheckpoint& checkpoint) {
  return impl_->restore_pool(checkpoint);
}

void CachingAllocator::set_stream_order(std::span<const StreamId> streams) {
  impl_->set_stream_order(streams);
}
void CachingAllocator::on_segment_change(std::function<void(const SegmentChange&)> callback) {
  impl_->on_segment = std::move(callback);
}

const AllocatorStats& CachingAllocator::stats() const noexcept { return impl_->stats; }
void CachingAllocator::reset_peak_stats() noexcept { impl_->stats.reset_peak(); }
void CachingAllocator::reset_accumulated_stats() noexcept { impl_->stats.reset_accumulated(); }
std::vector<SegmentView> CachingAllocator::segments() const { return impl_->segments(); }
const std::optional<OutOfMemoryInfo>& CachingAllocator::out_of_memory() const noexcept {
  return impl_->out_of_memory;
}
const AllocatorConfig& CachingAllocator::config() const noexcept { return impl_->config; }
Bytes CachingAllocator::largest_free_block() const { return impl_->largest_free_block(); }

}  // namespace peakline
