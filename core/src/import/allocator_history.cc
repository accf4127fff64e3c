#include "import/allocator_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace peakline {
namespace {

constexpr std::array<std::string_view, 15> kActions = {
    "alloc",         "free",         "free_requested", "free_completed",
    "segment_alloc", "segment_free", "segment_map",    "segment_unmap",
    "empty_cache",   "oom",          "snapshot",       "workspace_snapshot",
    "user_defined",  "annotation",   "annotate"};

}  // namespace

AllocatorHistory::AllocatorHistory(EventSink& sink, DeviceId device,
                                   const AllocatorConfig& settings, bool may_begin_late)
    : sink_(sink), device_(device), settings_(settings), may_begin_late_(may_begin_late) {}

bool AllocatorHistory::knows(std::string_view action) noexcept {
  return std::ranges::find(kActions, action) != kActions.end();
}

Status AllocatorHistory::on(const HistoryEntry& entry) {
  now_ = std::max(now_, entry.time);
  if (entry.size < 0) return invalid_input(fmt::format("the size {} is below zero", entry.size));
  const bool completes =
      entry.action == "free_completed" && pending_ && pending_->first == entry.address;
  PEAKLINE_RETURN_IF_ERROR(settle(!completes));
  if (completes) return {};
  PEAKLINE_RETURN_IF_ERROR(judge(entry));
  if (entry.action == "alloc") return alloc(entry);
  if (entry.action == "free_requested") return free_requested(entry);
  if (entry.action == "free_completed") return free_completed(entry);
  if (entry.action == "free") {
    PEAKLINE_RETURN_IF_ERROR(free_requested(entry));
    return settle(false);
  }
  if (entry.action == "segment_alloc" || entry.action == "segment_map") return segment(entry, true);
  if (entry.action == "segment_free" || entry.action == "segment_unmap")
    return segment(entry, false);
  if (entry.action == "empty_cache") return write(EmptyCache{device_});
  if (entry.action == "oom") {
    return write(OutOfMemory{Bytes(entry.size), device_, OutOfMemory::Kind::kFailed});
  }
  if (!knows(entry.action))
    return invalid_input(fmt::format("'{}' is not an action", entry.action));
  ++counts_.skipped;
  return {};
}

Status AllocatorHistory::alloc(const HistoryEntry& entry) {
  const std::uint64_t begin = entry.address;
  if (begin == 0) return invalid_input("an allocation cannot be at address 0");
  const std::uint64_t bytes = block_bytes(begin, entry.size);
  const std::uint64_t end = begin + bytes;
  const auto next = live_.lower_bound(begin);
  const auto overlap = [&](std::uint64_t other) {
    return invalid_input(
        fmt::format("the block at {} lies over the live block at {}", begin, other));
  };
  if (next != live_.end() && next->first < end) return overlap(next->first);
  if (next != live_.begin() && std::prev(next)->second.end > begin) {
    const auto before = std::prev(next);
    if (before->second.asked_end > begin) return overlap(before->first);
    PEAKLINE_RETURN_IF_ERROR(take_back_rest(before->first, before->second));
  }
  if (waiting_.contains(begin)) return overlap(begin);
  const BlockId block{next_block_++};
  live_.emplace_hint(next, begin, Live{block, begin + rounded(entry.size), end});
  count_block(begin, true);
  ++counts_.allocations;
  if (entry.stack != StackId{}) {
    PEAKLINE_RETURN_IF_ERROR(write(CallStack{entry.stack, StackId{}}));
  }
  return write(Alloc{block, Bytes(static_cast<std::int64_t>(bytes)), Bytes(entry.size),
                     Address(begin), entry.stream, device_},
               entry.op);
}

// A history has what was asked for. The allocator counts the block that it gave: rounded, and above
// 1 MiB with the rest of the free piece where that was not worth splitting off.
std::uint64_t AllocatorHistory::block_bytes(std::uint64_t address, std::int64_t size) const {
  const std::uint64_t asked = rounded(size);
  if (asked <= kSmallSize || settings_.expandable_segments) return asked;
  const std::uint64_t until = free_until(address);
  if (until - address <= asked) return asked;
  const std::uint64_t rest = until - address - asked;
  const bool may_split = asked < static_cast<std::uint64_t>(settings_.max_split_size.raw());
  return may_split && rest > kSmallSize ? asked : asked + rest;
}

std::uint64_t AllocatorHistory::rounded(std::int64_t size) const {
  return settings_.round_size(static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1)));
}

// Only expandable segments split off so little: a history that does not say its settings is of them.
Status AllocatorHistory::take_back_rest(std::uint64_t address, Live& live) {
  settings_.expandable_segments = true;
  live.end = live.asked_end;
  return write(Resize{live.block, Bytes(static_cast<std::int64_t>(live.end - address))});
}

std::uint64_t AllocatorHistory::free_until(std::uint64_t address) const {
  auto segment = segments_.upper_bound(address);
  if (segment == segments_.begin() || (--segment)->second.end <= address) return address;
  if (segment->second.expands) return address;
  std::uint64_t until = segment->second.end;
  const auto next = live_.upper_bound(address);
  if (next != live_.end()) until = std::min(until, next->first);
  const auto waiting = waiting_.upper_bound(address);
  if (waiting != waiting_.end()) until = std::min(until, waiting->first);
  return until;
}

Status AllocatorHistory::already_alive(std::uint64_t address, std::int64_t size, StreamId stream) {
  ++counts_.already_alive;
  HistoryEntry entry;
  entry.action = "alloc";
  entry.address = address;
  entry.size = size;
  entry.stream = stream;
  entry.op = "before the trace";
  return on(entry);
}

Status AllocatorHistory::free_requested(const HistoryEntry& entry) {
  const auto it = live_.find(entry.address);
  if (it == live_.end()) {
    if (may_begin_late_) return ++counts_.skipped, Status{};
    return invalid_input(
        fmt::format("nothing is allocated at {}, so it cannot be freed", entry.address));
  }
  pending_.emplace(entry.address, it->second.block);
  live_.erase(it);
  ++counts_.frees;
  return {};
}

Status AllocatorHistory::settle(bool waits) {
  if (!pending_) return {};
  const auto [address, block] = *pending_;
  pending_.reset();
  if (!waits) {
    count_block(address, false);
  } else {
    waiting_.emplace(address, block);
    PEAKLINE_RETURN_IF_ERROR(write(StreamUse{block, kUnknownStream}));
  }
  return write(Free{block});
}

Status AllocatorHistory::free_completed(const HistoryEntry& entry) {
  const auto it = waiting_.find(entry.address);
  if (it == waiting_.end()) {
    if (may_begin_late_) return ++counts_.skipped, Status{};
    return invalid_input(
        fmt::format("no free of {} is under way that could be completed", entry.address));
  }
  const BlockId block = it->second;
  waiting_.erase(it);
  count_block(entry.address, false);
  return write(FreeCompleted{block});
}

Status AllocatorHistory::segment(const HistoryEntry& entry, bool taken) {
  if (!taken) {
    segments_.erase(entry.address);
    return write(SegmentFree{Address(entry.address), Bytes(entry.size), device_});
  }
  ++counts_.segments;
  segments_[entry.address] = {entry.address + static_cast<std::uint64_t>(entry.size), 0,
                              entry.action == "segment_map"};
  return write(SegmentAlloc{Address(entry.address), Bytes(entry.size), entry.stream, device_});
}

void AllocatorHistory::count_block(std::uint64_t address, bool begins) {
  auto it = segments_.upper_bound(address);
  if (it == segments_.begin()) return;
  Segment& segment = (--it)->second;
  if (address >= segment.end) return;
  if (begins) {
    ++segment.blocks;
  } else if (segment.blocks > 0) {
    --segment.blocks;
  }
}

// A history does not say why segments were given back. When all free ones were, the program emptied
// the cache, or an allocation did so before it tried again; that one was then at the same place in
// the program. When some were kept, the allocator collected garbage.
Status AllocatorHistory::judge(const HistoryEntry& entry) {
  const bool returns = entry.action == "segment_free" || entry.action == "segment_unmap";
  if (returns || entry.action == "empty_cache") {
    if (!given_back_ || given_back_->is_over) given_back_ = GivenBack{};
    given_back_->told = given_back_->told || !returns;
    if (returns) given_back_->place = entry.op;
    return {};
  }
  if (!given_back_) return {};
  if (!given_back_->is_over) {
    given_back_->is_over = true;
    const auto is_free = [](const auto& segment) { return segment.second.blocks == 0; };
    given_back_->some_was_kept = std::ranges::any_of(segments_, is_free);
  }
  if (entry.action == "segment_alloc" || entry.action == "segment_map") {
    given_back_->took_another = true;
    return {};
  }
  const bool allocates = entry.action == "alloc" || entry.action == "oom";
  if (!allocates && entry.action != "free_requested" && entry.action != "free") return {};
  const GivenBack why = *std::exchange(given_back_, std::nullopt);
  if (why.told || why.some_was_kept) return {};
  const bool needed_it = entry.action == "oom" || why.took_another;
  if (allocates && needed_it && !why.place.empty() && why.place == entry.op) {
    return write(OutOfMemory{Bytes(entry.size), device_, OutOfMemory::Kind::kRetry});
  }
  return write(EmptyCache{device_});
}

Status AllocatorHistory::finish() {
  PEAKLINE_RETURN_IF_ERROR(settle(false));
  HistoryEntry end;
  end.action = "free";  // whatever comes next says what segments were given back for
  return judge(end);
}

Status AllocatorHistory::write(const EventBody& body, std::string_view op) {
  if (!op.empty()) PEAKLINE_RETURN_IF_ERROR(sink_.write({now_, ThreadId{}, OpBegin{sink_.op(op)}}));
  PEAKLINE_RETURN_IF_ERROR(sink_.write({now_, ThreadId{}, body}));
  if (!op.empty()) PEAKLINE_RETURN_IF_ERROR(sink_.write({now_, ThreadId{}, OpEnd{}}));
  return {};
}

}  // namespace peakline
