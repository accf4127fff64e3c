#include "allocator/session.h"

#include <algorithm>
#include <utility>

#include "base/capped.h"

namespace peakline {
namespace {

bool takes(SegmentChange::Kind kind) {
  return kind == SegmentChange::Kind::kAlloc || kind == SegmentChange::Kind::kMap;
}

// The changes with every run of returned segments in order of size: the order in which streams are
// walked there follows their handles, which a recording does not keep.
std::vector<SegmentChange> comparable(std::vector<SegmentChange> changes) {
  for (auto begin = changes.begin(); begin != changes.end();) {
    const auto is_taken = [](const SegmentChange& change) { return takes(change.kind); };
    begin = std::find_if_not(begin, changes.end(), is_taken);
    const auto end = std::find_if(begin, changes.end(), is_taken);
    std::sort(begin, end,
              [](const SegmentChange& a, const SegmentChange& b) { return a.bytes < b.bytes; });
    begin = end;
  }
  return changes;
}

}  // namespace

MemoryUse memory_use(const CachingAllocator& allocator) {
  const AllocatorStats& stats = allocator.stats();
  MemoryUse use;
  use.reserved = Bytes(stats.reserved_bytes[0].current);
  const Bytes active(stats.active_bytes[0].current);
  const Bytes allocated(stats.allocated_bytes[0].current);
  // Bytes asked for are counted while a block is active; a waiting one has few, so they count as
  // waiting with the rest of it.
  use.waiting = active - allocated;
  use.requested = std::min(Bytes(stats.requested_bytes[0].current), allocated);
  use.rounding = allocated - use.requested;
  use.cached = use.reserved - active;
  return use;
}

Session::Session(const AllocatorConfig& config, const DriverOptions& device,
                 std::optional<Bytes> limit)
    : device_(std::make_unique<RecordedDevice>(device)),
      allocator_(std::make_unique<CachingAllocator>(config, *device_)) {
  if (limit) allocator_->set_memory_limit(limit);
  allocator_->on_segment_change(
      [this](const SegmentChange& change) { changes_.push_back(change); });
}

bool Session::alloc(BlockId block, Bytes requested, StreamId stream) {
  // What completed inside a retry was not there when the allocator first looked for a block.
  const bool retried = std::exchange(retried_, false);
  if (retried) {
    apply_free();
  } else {
    catch_up();
  }
  if (failed_) return false;
  const std::int64_t peak_before = allocator_->stats().reserved_bytes[0].peak;
  const Allocation allocation = allocator_->allocate(requested, stream);
  apply_completed();
  if (device_->has_pending()) device_->leave_record();  // the recorded run took memory here
  if (!allocation.ok()) {
    failed_ = true;
    return false;
  }
  live_.insert_or_assign(block.raw(), Held{allocation.address, stream, false});
  if (allocator_->stats().reserved_bytes[0].peak > peak_before) at_peak_ = memory_use(*allocator_);
  return true;
}

void Session::free(BlockId block) {
  catch_up();
  if (!failed_ && live_.contains(block.raw())) freed_ = block;
}

void Session::apply_free() {
  if (!freed_) return;
  const auto it = live_.find(freed_->raw());
  const Held held = it->second;
  live_.erase(it);
  allocator_->free(held.address);
  if (held.elsewhere) waiting_.insert_or_assign(freed_->raw(), held.address);
  freed_.reset();
}

void Session::free_completed(BlockId block) {
  if (!failed_) completed_.push_back(block);
}

void Session::apply_completed() {
  for (const BlockId block : std::exchange(completed_, {})) {
    const auto it = waiting_.find(block.raw());
    if (it == waiting_.end()) continue;
    allocator_->complete_free(it->second);
    waiting_.erase(it);
  }
}

void Session::catch_up() {
  apply_free();
  apply_completed();
}

void Session::stream_use(BlockId block, StreamId stream) {
  const auto it = live_.find(block.raw());
  if (failed_ || it == live_.end()) return;
  allocator_->record_stream(it->second.address, stream);
  it->second.elsewhere = it->second.elsewhere || stream != it->second.stream;
}

void Session::empty_cache() {
  catch_up();
  if (!failed_) allocator_->empty_cache();
}

void Session::recorded(const SegmentChange& change) {
  recorded_.push_back(change);
  device_->add(change);
}

SettingOutcome Session::outcome() const {
  const AllocatorStats& stats = allocator_->stats();
  SettingOutcome outcome;
  outcome.conf = allocator_->config().text;
  outcome.fits = !failed_;
  outcome.peak_reserved = Bytes(stats.reserved_bytes[0].peak);
  outcome.peak_allocated = Bytes(stats.allocated_bytes[0].peak);
  outcome.at_peak = at_peak_;
  outcome.segments = static_cast<std::uint64_t>(stats.num_device_alloc);
  outcome.device_frees = static_cast<std::uint64_t>(stats.num_device_free);
  outcome.retries = static_cast<std::uint64_t>(stats.num_alloc_retries);
  outcome.ooms = static_cast<std::uint64_t>(stats.num_ooms);
  return outcome;
}

std::optional<RecordedSegments> Session::compare_with_record() const {
  if (recorded_.empty()) return std::nullopt;
  RecordedSegments result;
  Bytes reserved;
  for (const SegmentChange& change : recorded_) {
    reserved = capped_sum(reserved, takes(change.kind) ? change.bytes : Bytes{} - change.bytes);
    result.peak_reserved = std::max(result.peak_reserved, reserved);
  }
  result.changes = recorded_.size();
  const auto same = [](const SegmentChange& a, const SegmentChange& b) {
    return takes(a.kind) == takes(b.kind) && a.bytes == b.bytes;
  };
  const std::vector<SegmentChange> simulated = comparable(changes_);
  const std::vector<SegmentChange> real = comparable(recorded_);
  const auto [mine, theirs] =
      std::mismatch(simulated.begin(), simulated.end(), real.begin(), real.end(), same);
  result.same = static_cast<std::uint64_t>(mine - simulated.begin());
  result.equal = mine == simulated.end() && theirs == real.end();
  return result;
}

}  // namespace peakline
