#include "capture/allocator_watch.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace peakline::capture {
namespace {

constexpr std::uint64_t kRounding = 512;
// Up to here torch always splits a block, so it counts for what rounding makes of the request.
constexpr std::uint64_t kAlwaysSplit = std::uint64_t{1} << 20;

std::uint64_t rounded(std::uint64_t size) {
  return std::max(kRounding, (size + kRounding - 1) / kRounding * kRounding);
}

}  // namespace

void AllocatorWatch::start(const AllocatorCounts& counts, bool rounds_plainly) {
  const std::lock_guard guard(busy_);
  ++actions_;
  open_ = 0;
  freed_ = 0;
  segments_changed_ = false;
  segments_returned_ = false;
  rounds_plainly_ = rounds_plainly;
  handed_out_ = counts.handed_out;
  resets_ = resets(counts);
  retries_ = counts.retries;
  flushes_ = counts.flushes;
}

void AllocatorWatch::on(const AllocatorEntry& entry, Port& port) {
  device_.store(entry.device, std::memory_order_relaxed);
  switch (entry.action) {
    case AllocatorEntry::Action::kAlloc:
      return on_alloc(entry, port);
    case AllocatorEntry::Action::kFreeRequested:
      return on_free(entry, port);
    case AllocatorEntry::Action::kFreeCompleted:
      return on_free_completed(entry, port);
    case AllocatorEntry::Action::kSegmentAlloc:
    case AllocatorEntry::Action::kSegmentFree:
      return on_segment(entry, port);
    case AllocatorEntry::Action::kOutOfMemory:
      return on_out_of_memory(entry, port);
  }
}

// The counts do not have this block in them yet.
void AllocatorWatch::on_alloc(const AllocatorEntry& entry, Port& port) {
  RawEvent alloc{.address = entry.address,
                 .size = rounded(entry.size),
                 .extra = entry.size,
                 .id = entry.stream,
                 .kind = RawKind::kAlloc,
                 .device = device()};
  const bool certain = entry.size <= kAlwaysSplit && rounds_plainly_;
  if (!certain) alloc.kind = RawKind::kAllocEstimate;
  {
    const std::lock_guard guard(busy_);
    ++actions_;
    close_free(port);
    if (open_ != 0 || segments_changed_) write_total(read_counts(port, entry.size), port);
    if (certain) {
      handed_out_ += static_cast<std::int64_t>(alloc.size);
    } else {
      open_ = entry.address;
      open_at_least_ = rounds_plainly_ ? static_cast<std::int64_t>(alloc.size) : 1;
    }
  }
  port.push_alloc(alloc, !certain);
}

// The freed block is no longer in what is allocated; what was handed out keeps it.
void AllocatorWatch::on_free(const AllocatorEntry& entry, Port& port) {
  std::optional<std::int64_t> total;
  {
    const std::lock_guard guard(busy_);
    ++actions_;
    close_free(port);
    if (open_ != 0 || segments_changed_) total = read_counts(port, 0);
    freed_ = entry.address;
  }
  port.push({.address = entry.address, .kind = RawKind::kFree, .device = device()});
  write_total(total, port);
}

// Nearly always a free is complete at once, which says nothing new.
void AllocatorWatch::on_free_completed(const AllocatorEntry& entry, Port& port) {
  {
    const std::lock_guard guard(busy_);
    if (freed_ == entry.address) {
      freed_ = 0;
      return;
    }
    close_free(port);
  }
  port.push({.address = entry.address, .kind = RawKind::kFreeCompleted, .device = device()});
}

void AllocatorWatch::on_segment(const AllocatorEntry& entry, Port& port) {
  const bool taken = entry.action == AllocatorEntry::Action::kSegmentAlloc;
  {
    const std::lock_guard guard(busy_);
    close_free(port);
    segments_changed_ = true;
    segments_returned_ = segments_returned_ || !taken;
  }
  port.push({.address = entry.address,
             .size = entry.size,
             .id = entry.stream,
             .kind = taken ? RawKind::kSegmentAlloc : RawKind::kSegmentFree,
             .device = device()});
}

void AllocatorWatch::on_out_of_memory(const AllocatorEntry& entry, Port& port) {
  {
    const std::lock_guard guard(busy_);
    ++actions_;
    close_free(port);
    write_total(read_counts(port, entry.size), port);
  }
  port.push({.size = entry.size, .kind = RawKind::kOutOfMemory, .device = device()});
}

// Something else happened before the last free was complete.
void AllocatorWatch::close_free(Port& port) {
  if (freed_ == 0) return;
  port.push({.address = freed_, .kind = RawKind::kFreeWaits, .device = device()});
  freed_ = 0;
}

std::optional<std::int64_t> AllocatorWatch::read_counts(Port& port, std::uint64_t requested) {
  const AllocatorCounts counts = port.counts();
  const std::optional<std::int64_t> total = write_size(counts, port);
  write_flushes(counts, requested, port);
  return total;
}

// What is allocated where the size stays open: the counts were reset in between. It still tells the
// size of a block that is alive.
std::optional<std::int64_t> AllocatorWatch::write_size(const AllocatorCounts& counts, Port& port) {
  const std::uint64_t open = std::exchange(open_, 0);
  const std::int64_t size = counts.handed_out - std::exchange(handed_out_, counts.handed_out);
  const bool same_counts = std::exchange(resets_, resets(counts)) == resets(counts);
  if (open == 0) return std::nullopt;
  if (!same_counts || size < open_at_least_) return counts.allocated;
  port.push({.address = open,
             .size = static_cast<std::uint64_t>(size),
             .kind = RawKind::kResize,
             .device = device()});
  return std::nullopt;
}

void AllocatorWatch::write_total(std::optional<std::int64_t> total, Port& port) {
  if (!total) return;
  port.push(
      {.size = static_cast<std::uint64_t>(*total), .kind = RawKind::kTotal, .device = device()});
}

void AllocatorWatch::write_flushes(const AllocatorCounts& counts, std::uint64_t requested,
                                   Port& port) {
  for (std::int64_t i = retries_; i < counts.retries; ++i) {
    port.push({.size = requested, .kind = RawKind::kRetry, .device = device()});
  }
  if (segments_returned_ && counts.retries == retries_ && counts.flushes > flushes_) {
    port.push({.kind = RawKind::kEmptyCache, .device = device()});
  }
  retries_ = counts.retries;
  flushes_ = counts.flushes;
  segments_changed_ = false;
  segments_returned_ = false;
}

void AllocatorWatch::settle(Port& port) {
  std::uint64_t actions = 0;
  {
    const std::lock_guard guard(busy_);
    if (open_ == 0) return;
    actions = actions_;
  }
  // Takes the allocator's lock, so the own one must not be held.
  const AllocatorCounts counts = port.counts();
  const std::lock_guard guard(busy_);
  if (actions == actions_ && open_ != 0) write_total(write_size(counts, port), port);
}

void AllocatorWatch::finish(Port& port) {
  const AllocatorCounts counts = port.counts();
  const std::lock_guard guard(busy_);
  close_free(port);
  write_total(write_size(counts, port), port);
  write_flushes(counts, 0, port);
}

}  // namespace peakline::capture
