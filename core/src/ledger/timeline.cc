#include "ledger/timeline.h"

#include <algorithm>

namespace peakline {
namespace {

void add(CategoryArray& to, const CategoryArray& from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

// Merges each pair of neighbours into the first of the two.
template <class T, class Merge>
void merge_pairs(std::vector<T>& values, Merge merge) {
  const std::size_t kept = (values.size() + 1) / 2;
  for (std::size_t i = 0; i < kept; ++i) {
    if (i > 0) values[i] = values[2 * i];
    if (2 * i + 1 < values.size()) merge(values[i], values[2 * i + 1]);
  }
  values.resize(kept);
}

// `range` now covers what follows it, too.
template <class Range>
void widen(Range& range, const Range& next) {
  range.lowest = std::min(range.lowest, next.lowest);
  range.reserved = std::max(range.reserved, next.reserved);
  if (next.highest <= range.highest) return;
  range.highest = next.highest;
  range.highest_event = next.highest_event;
}

TimelineLevel coarser(const TimelineLevel& fine) {
  TimelineLevel level = fine;
  level.events_per_bucket *= 2;
  merge_pairs(level.buckets, [](TimelineBucket& a, const TimelineBucket& b) { widen(a, b); });
  merge_pairs(level.at_start, [](CategoryArray&, const CategoryArray&) {});
  return level;
}

}  // namespace

TimelinePass::Device& TimelinePass::device(DeviceId id) {
  if (id.raw() >= devices_.size()) devices_.resize(id.raw() + std::size_t{1});
  return devices_[id.raw()];
}

void TimelinePass::halve() {
  width_ *= 2;
  merge_pairs(starts_, [](TimeNs&, TimeNs) {});
  for (Device& device : devices_) {
    merge_pairs(device.ranges, [](Range& a, const Range& b) { widen(a, b); });
    merge_pairs(device.change, [](CategoryArray& a, const CategoryArray& b) { add(a, b); });
  }
}

// Makes the bucket of this event the last one; buckets in which nothing changed repeat the totals.
void TimelinePass::advance(const Now& now) {
  while (now.event / width_ >= kMaxBuckets) halve();
  const std::size_t wanted = static_cast<std::size_t>(now.event / width_) + 1;
  if (starts_.size() < wanted) starts_.resize(wanted, now.time);
  for (Device& device : devices_) {
    if (device.ranges.size() >= wanted) continue;
    for (std::uint64_t i = device.ranges.size(); i < wanted; ++i) {
      const std::uint64_t before = i * width_ - (i > 0 ? 1 : 0);  // what it starts with is older
      device.ranges.push_back({device.allocated, device.allocated, device.reserved, before});
    }
    device.change.resize(wanted);
  }
}

void TimelinePass::observe(const Now& now, DeviceId id) {
  Device& seen = device(id);
  advance(now);
  const DeviceTotals& totals = now.ledger.totals(id);
  seen.allocated = totals.allocated;
  seen.reserved = totals.reserved;
  Range& range = seen.ranges.back();
  range.lowest = std::min(range.lowest, totals.allocated);
  if (totals.allocated > range.highest) {
    range.highest = totals.allocated;
    range.highest_event = now.event;
  }
  range.reserved = std::max(range.reserved, totals.reserved);
}

void TimelinePass::book(const Block& block, CategoryId category, std::uint64_t event, Bytes bytes) {
  const std::size_t slot = std::min<std::size_t>(category.raw(), category::kMaxCategories - 1);
  Device& seen = devices_[block.device.raw()];
  seen.change[static_cast<std::size_t>(event / width_)][slot] += bytes;
}

void TimelinePass::on_alloc(const Now& now, const Block& block) { observe(now, block.device); }

void TimelinePass::on_free(const Now& now, const Block& block, CategoryId category) {
  observe(now, block.device);
  book(block, category, block.birth.event, block.bytes);
  book(block, category, now.event, Bytes{} - block.bytes);
}

void TimelinePass::on_reserved(const Now& now, DeviceId device) { observe(now, device); }

void TimelinePass::finish(const Now& now) {
  now.ledger.for_each_live([&](const Block& block) {
    book(block, resolve_category(block, now.context, true), block.birth.event, block.bytes);
  });
}

TimelineLevel TimelinePass::finest(const Device& device) const {
  TimelineLevel level{width_, {}, {}};
  CategoryArray held{};
  for (std::size_t i = 0; i < device.ranges.size(); ++i) {
    const Range& range = device.ranges[i];
    level.buckets.push_back(
        {i * width_, starts_[i], range.lowest, range.highest, range.reserved, range.highest_event});
    level.at_start.push_back(held);
    add(held, device.change[i]);
  }
  return level;
}

std::vector<TimelineLevel> TimelinePass::levels(DeviceId device) const {
  std::vector<TimelineLevel> levels;
  if (device.raw() >= devices_.size() || devices_[device.raw()].ranges.empty()) return levels;
  levels.push_back(finest(devices_[device.raw()]));
  while (levels.back().buckets.size() > 1) levels.push_back(coarser(levels.back()));
  return levels;
}

}  // namespace peakline
