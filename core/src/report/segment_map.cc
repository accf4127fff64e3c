#include "report/segment_map.h"

#include <algorithm>

namespace peakline {
namespace {

std::uint64_t end_of(Address address, Bytes bytes) {
  return address.raw() + static_cast<std::uint64_t>(bytes.raw());
}

// Parts of an expandable segment lie side by side, and blocks cross from one to the next.
std::vector<MapSegment> joined(std::vector<MapSegment> parts, const auto& crosses) {
  std::ranges::sort(parts, {}, &MapSegment::address);
  std::vector<MapSegment> out;
  for (MapSegment& part : parts) {
    const bool adjacent = !out.empty() && out.back().stream == part.stream &&
                          end_of(out.back().address, out.back().bytes) == part.address.raw();
    if (adjacent && crosses(part.address)) {
      out.back().bytes += part.bytes;
    } else {
      out.push_back(std::move(part));
    }
  }
  return out;
}

Bytes largest_hole(const MapSegment& segment) {
  Bytes largest;
  Bytes at;
  for (const MapBlock& block : segment.blocks) {
    largest = std::max(largest, block.offset - at);
    at = block.offset + block.bytes;
  }
  return std::max(largest, segment.bytes - at);
}

// The largest segments, as many as hold at most `most` blocks together, by address again.
std::size_t keep_largest(std::vector<MapSegment>& segments, std::size_t most) {
  std::ranges::stable_sort(segments, std::greater{}, &MapSegment::bytes);
  std::size_t blocks = 0;
  std::size_t kept = 0;
  while (kept < segments.size()) {
    blocks += segments[kept].blocks.size() + 1;
    if (blocks > most && kept > 0) break;
    ++kept;
  }
  const std::size_t left_out = segments.size() - kept;
  segments.resize(kept);
  std::ranges::sort(segments, {}, &MapSegment::address);
  return left_out;
}

}  // namespace

void PlacedMoment::block_gone(std::uint64_t born, std::uint64_t gone, Address address, Bytes bytes,
                              CategoryId category) {
  if (born <= event_ && event_ < gone) blocks_.push_back({address, bytes, category});
}

void PlacedMoment::segment_gone(std::uint64_t born, std::uint64_t gone, Address address,
                                Bytes bytes, StreamId stream) {
  if (born <= event_ && event_ < gone) segments_.push_back({address, bytes, {}, stream, {}});
}

SegmentMap PlacedMoment::finish(std::size_t most_blocks) {
  SegmentMap map;
  map.event = event_;
  map.time = time_;
  std::ranges::sort(blocks_, {}, &Placed::address);
  const auto crosses = [this](Address border) {
    const auto after = std::ranges::lower_bound(blocks_, border, {}, &Placed::address);
    return after != blocks_.begin() &&
           end_of(std::prev(after)->address, std::prev(after)->bytes) > border.raw();
  };
  map.segments = joined(std::move(segments_), crosses);
  auto block = blocks_.begin();
  for (MapSegment& segment : map.segments) {
    const std::uint64_t end = end_of(segment.address, segment.bytes);
    while (block != blocks_.end() && block->address < segment.address) ++block;
    for (; block != blocks_.end() && block->address.raw() < end; ++block) {
      const Bytes offset(static_cast<std::int64_t>(block->address.raw() - segment.address.raw()));
      segment.blocks.push_back({offset, block->bytes, block->category});
      segment.allocated += block->bytes;
    }
    map.reserved += segment.bytes;
    map.allocated += segment.allocated;
    map.largest_free = std::max(map.largest_free, largest_hole(segment));
  }
  map.segments_left_out = keep_largest(map.segments, most_blocks);
  return map;
}

SegmentMapPass::SegmentMapPass(DeviceId device, bool simulated, const AllocatorConfig& config,
                               Bytes total)
    : device_(device) {
  if (!simulated) return;
  DriverOptions options;
  if (total > Bytes{}) options.total = total;
  driver_ = make_driver_model(options);
  allocator_ = std::make_unique<CachingAllocator>(config, *driver_);
  allocator_->on_segment_change([this](const SegmentChange& change) {
    if (change.kind == SegmentChange::Kind::kAlloc || change.kind == SegmentChange::Kind::kMap) {
      segment_taken(event_, change.address, change.bytes, change.stream);
    } else {
      segment_returned(event_, change.address, change.bytes);
    }
  });
}

void SegmentMapPass::on_segment(const Now& now, const SegmentAlloc& taken) {
  if (allocator_ != nullptr || taken.device != device_ || taken.bytes <= Bytes{}) return;
  segment_taken(now.event, taken.address, taken.bytes, taken.stream);
}

void SegmentMapPass::on_segment(const Now& now, const SegmentFree& returned) {
  if (allocator_ != nullptr || returned.device != device_) return;
  segment_returned(now.event, returned.address, returned.bytes);
}

void SegmentMapPass::segment_taken(std::uint64_t event, Address address, Bytes bytes,
                                   StreamId stream) {
  if (segments_.try_emplace(address, Segment{bytes, stream, event}).second) reserved_ += bytes;
}

// A part of what was taken in one piece may be returned; what is left stays.
void SegmentMapPass::segment_returned(std::uint64_t event, Address address, Bytes bytes) {
  auto found = segments_.upper_bound(address);
  if (found == segments_.begin()) return;
  --found;
  const auto [start, segment] = *found;
  const std::uint64_t end = end_of(start, segment.bytes);
  const std::uint64_t returned_end = std::min(end, end_of(address, bytes));
  if (address.raw() >= end || bytes <= Bytes{}) return;
  at_peak_.segment_gone(segment.born, event, start, segment.bytes, segment.stream);
  at_reserved_.segment_gone(segment.born, event, start, segment.bytes, segment.stream);
  segments_.erase(found);
  reserved_ -= Bytes(static_cast<std::int64_t>(returned_end - address.raw()));
  const auto keep = [&, stream = segment.stream](std::uint64_t from, std::uint64_t to) {
    if (from >= to) return;
    const Bytes rest(static_cast<std::int64_t>(to - from));
    segments_.emplace(Address(from), Segment{rest, stream, event});
  };
  keep(start.raw(), address.raw());
  keep(returned_end, end);
}

void SegmentMapPass::mark_if_higher(const Now& now) {
  if (reserved_ <= highest_reserved_) return;
  highest_reserved_ = reserved_;
  at_reserved_.mark(now);
}

void SegmentMapPass::on_alloc(const Now& now, const Block& block) {
  if (block.device != device_) return;
  event_ = now.event;
  if (allocator_ != nullptr && !failed_) {
    const Bytes requested = block.requested > Bytes{} ? block.requested : block.bytes;
    if (requested > Bytes{}) {
      const Allocation place = allocator_->allocate(requested, block.stream);
      failed_ = !place.ok();
      if (place.ok()) places_.insert_or_assign(block.id.raw(), Place{place.address, place.bytes});
    }
  }
  mark_if_higher(now);
  const Bytes total = now.ledger.totals(device_).allocated;
  if (total <= highest_allocated_) return;
  highest_allocated_ = total;
  at_peak_.mark(now);
}

void SegmentMapPass::block_gone(const Block& block, std::uint64_t gone, CategoryId category) {
  Place place{block.address, block.bytes};
  if (allocator_ != nullptr) {
    const auto found = places_.find(block.id.raw());
    if (found == places_.end()) return;
    place = found->second;
  }
  at_peak_.block_gone(block.birth.event, gone, place.address, place.bytes, category);
  at_reserved_.block_gone(block.birth.event, gone, place.address, place.bytes, category);
}

void SegmentMapPass::on_free(const Now& now, const Block& block, CategoryId category) {
  if (block.device != device_) return;
  block_gone(block, now.event, category);
  if (allocator_ == nullptr) return;
  const auto found = places_.find(block.id.raw());
  if (found == places_.end()) return;
  if (!failed_) allocator_->free(found->second.address);
  places_.erase(found);
}

void SegmentMapPass::on_other(const Now& now, const Event& event) {
  event_ = now.event;
  const auto* empty = std::get_if<EmptyCache>(&event.body);
  if (allocator_ != nullptr && !failed_ && empty != nullptr && empty->device == device_) {
    allocator_->empty_cache();
  }
}

void SegmentMapPass::on_reserved(const Now& now, DeviceId device) {
  if (device == device_) mark_if_higher(now);
}

void SegmentMapPass::finish(const Now& now) {
  const std::uint64_t end = now.event + 1;
  now.ledger.for_each_live([&](const Block& block) {
    if (block.device == device_) {
      block_gone(block, end, resolve_category(block, now.context, true));
    }
  });
  for (const auto& [address, segment] : segments_) {
    at_peak_.segment_gone(segment.born, end, address, segment.bytes, segment.stream);
    at_reserved_.segment_gone(segment.born, end, address, segment.bytes, segment.stream);
  }
}

std::vector<SegmentMap> SegmentMapPass::maps(std::size_t most_blocks) {
  std::vector<SegmentMap> maps;
  maps.push_back(at_peak_.finish(most_blocks));
  maps.back().title = "peak";
  maps.push_back(at_reserved_.finish(most_blocks));
  maps.back().title = "reserved";
  for (SegmentMap& map : maps) map.simulated = allocator_ != nullptr;
  std::erase_if(maps, [](const SegmentMap& map) { return map.segments.empty(); });
  if (maps.size() == 2 && maps[0].event == maps[1].event) maps.pop_back();
  return maps;
}

PlacesCheck::Device& PlacesCheck::at(DeviceId device) {
  if (device.raw() >= devices_.size()) devices_.resize(device.raw() + std::size_t{1});
  return devices_[device.raw()];
}

void PlacesCheck::on_segment(const Now&, const SegmentAlloc& taken) {
  at(taken.device).segments[taken.address] = taken.bytes;
}

void PlacesCheck::on_alloc(const Now&, const Block& block) {
  Device& device = at(block.device);
  const auto after = device.segments.upper_bound(block.address);
  const bool inside =
      after != device.segments.begin() &&
      block.address.raw() < end_of(std::prev(after)->first, std::prev(after)->second);
  ++(inside ? device.inside : device.outside);
}

bool PlacesCheck::complete(DeviceId device) const {
  if (device.raw() >= devices_.size()) return false;
  return devices_[device.raw()].outside == 0 && devices_[device.raw()].inside > 0;
}

}  // namespace peakline
