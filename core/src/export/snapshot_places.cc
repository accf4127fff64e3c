#include "export/snapshot_places.h"

#include <algorithm>

namespace peakline {
namespace {

using Action = HistoryStep::Action;

// torch's history has what was asked for, and readers round it up to get the block's size.
Bytes told_size(Bytes requested, Bytes bytes) {
  if (requested <= Bytes{} || requested > bytes) return bytes;
  const std::uint64_t rounded = (static_cast<std::uint64_t>(requested.raw()) + 511) / 512 * 512;
  return rounded == static_cast<std::uint64_t>(bytes.raw()) ? requested : bytes;
}

std::uint64_t end_of(std::uint64_t address, Bytes bytes) {
  return address + static_cast<std::uint64_t>(std::max<std::int64_t>(bytes.raw(), 0));
}

}  // namespace

PlacesPass::PlacesPass(DeviceId device, const AllocatorConfig* simulated,
                       std::function<CategoryId()> next_category, Teller tell)
    : device_(device), next_category_(std::move(next_category)), tell_(std::move(tell)) {
  if (simulated == nullptr) return;
  driver_ = make_driver_model({});
  allocator_ = std::make_unique<CachingAllocator>(*simulated, *driver_);
  allocator_->on_segment_change([this](const SegmentChange& change) {
    if (change.kind == SegmentChange::Kind::kAlloc || change.kind == SegmentChange::Kind::kMap) {
      segment_taken(*now_, change.address, change.bytes, change.stream);
    } else {
      segment_returned(*now_, change.address, change.bytes);
    }
  });
}

std::optional<std::uint64_t> PlacesPass::place(const Block& block, Bytes& bytes) {
  if (allocator_ == nullptr) return block.address.raw();
  if (failed_) return std::nullopt;
  const Bytes requested = block.requested > Bytes{} ? block.requested : block.bytes;
  const Allocation place = allocator_->allocate(requested, block.stream);
  failed_ = !place.ok();
  bytes = place.bytes;
  return place.ok() ? std::optional(place.address.raw()) : std::nullopt;
}

void PlacesPass::on_alloc(const Now& now, const Block& block) {
  const CategoryId category = next_category_();
  if (block.device != device_ || block.bytes <= Bytes{}) return;
  settle(now, false);
  now_ = &now;
  Bytes bytes = block.bytes;
  const std::optional<std::uint64_t> address = place(block, bytes);
  if (!address) return;
  complete_within(now, *address, end_of(*address, bytes));
  const Bytes told = told_size(block.requested, bytes);
  const std::uint32_t stack =
      tell_(now, {Action::kAlloc, Address(*address), told, block.stream, &block, category});
  blocks_[*address] = {bytes, std::min(told, bytes), block.stream, PlacedBlock::State::kAllocated,
                       stack};
  places_[block.id.raw()] = *address;
}

void PlacesPass::on_free(const Now& now, const Block& block, CategoryId) {
  if (block.device != device_) return;
  settle(now, false);
  const auto found = places_.find(block.id.raw());
  if (found == places_.end()) return;
  const std::uint64_t address = found->second;
  places_.erase(found);
  const auto placed = blocks_.find(address);
  if (placed == blocks_.end()) return;
  placed->second.state = PlacedBlock::State::kPendingFree;
  const Freed freed{block.id, address, placed->second.requested, block.stream};
  tell_(now, {Action::kFreeRequested, Address(address), freed.bytes, freed.stream, nullptr, {}});
  if (allocator_ != nullptr) {
    now_ = &now;
    allocator_->free(Address(address));
    complete(now, freed);
    return;
  }
  pending_ = freed;
  if (used_elsewhere_.erase(block.id.raw()) > 0) settle(now, true);
}

// The free before this event is over, unless its block is known to wait for other streams.
void PlacesPass::settle(const Now& now, bool waits) {
  if (!pending_) return;
  const Freed freed = *pending_;
  pending_.reset();
  if (waits) {
    waiting_.emplace(freed.block.raw(), freed);
  } else {
    complete(now, freed);
  }
}

void PlacesPass::complete(const Now& now, const Freed& freed) {
  blocks_.erase(freed.address);
  tell_(now,
        {Action::kFreeCompleted, Address(freed.address), freed.bytes, freed.stream, nullptr, {}});
}

// Memory that is used again was free before, whether somebody saw it or not.
void PlacesPass::complete_within(const Now& now, std::uint64_t begin, std::uint64_t end) {
  if (waiting_.empty()) return;
  auto block = blocks_.lower_bound(begin);
  if (block != blocks_.begin() &&
      end_of(std::prev(block)->first, std::prev(block)->second.bytes) > begin) {
    --block;
  }
  std::vector<std::uint64_t> over;
  for (; block != blocks_.end() && block->first < end; ++block) over.push_back(block->first);
  for (const std::uint64_t address : over) {
    const auto waits = std::ranges::find_if(
        waiting_, [&](const auto& entry) { return entry.second.address == address; });
    if (waits == waiting_.end()) continue;
    const Freed freed = waits->second;
    waiting_.erase(waits);
    complete(now, freed);
  }
}

void PlacesPass::segment_taken(const Now& now, Address address, Bytes bytes, StreamId stream) {
  if (!segments_.try_emplace(address.raw(), PlacedSegment{bytes, stream}).second) return;
  tell_(now, {Action::kSegmentAlloc, address, bytes, stream, nullptr, {}});
}

// A part of what was taken in one piece may be returned; what is left stays.
void PlacesPass::segment_returned(const Now& now, Address address, Bytes bytes) {
  auto found = segments_.upper_bound(address.raw());
  if (found == segments_.begin() || bytes <= Bytes{}) return;
  --found;
  const auto [start, segment] = *found;
  const std::uint64_t end = end_of(start, segment.bytes);
  if (address.raw() >= end) return;
  const std::uint64_t returned_end = std::min(end, end_of(address.raw(), bytes));
  segments_.erase(found);
  complete_within(now, address.raw(), returned_end);
  const auto keep = [&, stream = segment.stream](std::uint64_t from, std::uint64_t to) {
    if (from >= to) return;
    segments_[from] = {Bytes(static_cast<std::int64_t>(to - from)), stream};
  };
  keep(start, address.raw());
  keep(returned_end, end);
  tell_(now, {Action::kSegmentFree, address, bytes, segment.stream, nullptr, {}});
}

void PlacesPass::on_segment(const Now& now, const SegmentAlloc& taken) {
  if (allocator_ != nullptr || taken.device != device_ || taken.bytes <= Bytes{}) return;
  settle(now, false);
  segment_taken(now, taken.address, taken.bytes, taken.stream);
}

void PlacesPass::on_segment(const Now& now, const SegmentFree& returned) {
  if (allocator_ != nullptr || returned.device != device_) return;
  settle(now, false);
  segment_returned(now, returned.address, returned.bytes);
}

void PlacesPass::on_other(const Now& now, const Event& event) {
  if (const auto* use = std::get_if<StreamUse>(&event.body)) {
    if (pending_ && pending_->block == use->block) {
      settle(now, true);
    } else if (places_.contains(use->block.raw()) && allocator_ == nullptr) {
      used_elsewhere_[use->block.raw()] = true;
    }
  } else if (const auto* done = std::get_if<FreeCompleted>(&event.body)) {
    if (pending_ && pending_->block == done->block) settle(now, false);
    const auto found = waiting_.find(done->block.raw());
    if (found == waiting_.end()) return;
    const Freed freed = found->second;
    waiting_.erase(found);
    complete(now, freed);
  } else if (const auto* empty = std::get_if<EmptyCache>(&event.body)) {
    if (allocator_ == nullptr || empty->device != device_ || failed_) return;
    now_ = &now;
    allocator_->empty_cache();
  } else if (const auto* oom = std::get_if<OutOfMemory>(&event.body)) {
    if (oom->device != device_ || oom->kind != OutOfMemory::Kind::kFailed) return;
    settle(now, false);
    tell_(now, {Action::kOutOfMemory, {}, oom->requested, {}, nullptr, {}});
  }
}

void PlacesPass::finish(const Now& now) { settle(now, false); }

}  // namespace peakline
