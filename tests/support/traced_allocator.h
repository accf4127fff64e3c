// The simulated caching allocator, telling what it does as torch's own tells its trace tracker: in
// the same order, with counts that have seen as much.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <peakline/allocator.h>

#include "capture/allocator_watch.h"
#include "random_program.h"

namespace peakline::testing {

class TracedAllocator : public ProgramSubject {
 public:
  using Entry = capture::AllocatorEntry;
  using Action = Entry::Action;
  using Listener = std::function<void(const Entry&)>;

  TracedAllocator(const AllocatorConfig& config, const DriverOptions& driver, Listener listener)
      : device_(make_driver_model(driver)),
        allocator_(config, *device_),
        listener_(std::move(listener)) {
    allocator_.on_segment_change([this](const SegmentChange& change) { on_segment(change); });
  }

  // What torch's counts say at this moment of its trace.
  [[nodiscard]] capture::AllocatorCounts counts() const {
    const Stat& bytes = allocator_.stats().allocated_bytes[0];
    return {.allocated = bytes.current - unseen_,
            .handed_out = bytes.allocated - unseen_,
            .taken_back = bytes.freed(),
            .retries = allocator_.stats().num_alloc_retries,
            .flushes = allocator_.stats().num_sync_all_streams};
  }
  [[nodiscard]] const AllocatorStats& stats() const { return allocator_.stats(); }
  [[nodiscard]] std::optional<Bytes> limit() const { return allocator_.memory_limit(); }
  [[nodiscard]] const std::vector<SegmentChange>& segment_changes() const { return changes_; }
  [[nodiscard]] Bytes size(std::uint64_t handle) const { return live_.at(handle).bytes; }
  [[nodiscard]] std::uint64_t address(std::uint64_t handle) const {
    return live_.at(handle).address.raw();
  }

  bool allocate(std::uint64_t handle, std::uint64_t size, std::uint32_t stream) override {
    const std::int64_t flushes = allocator_.stats().num_sync_all_streams;
    const Allocation got =
        allocator_.allocate(Bytes(static_cast<std::int64_t>(size)), StreamId(stream));
    if (allocator_.stats().num_sync_all_streams != flushes) tell_all_complete();
    if (!got.ok()) {
      tell({.action = Action::kOutOfMemory, .size = size, .stream = stream});
      return false;
    }
    unseen_ = got.bytes.raw();  // torch counts a block after it has told of it
    tell({.action = Action::kAlloc, .address = got.address.raw(), .size = size, .stream = stream});
    unseen_ = 0;
    live_[handle] = got;
    return true;
  }
  void free(std::uint64_t handle, bool waits) override {
    const std::uint64_t address = live_.at(handle).address.raw();
    live_.erase(handle);
    allocator_.free(Address(address));
    tell({.action = Action::kFreeRequested, .address = address});
    if (waits) {
      waiting_.push_back(address);
    } else {
      tell({.action = Action::kFreeCompleted, .address = address});
    }
  }
  void record_stream(std::uint64_t handle, std::uint32_t stream) override {
    allocator_.record_stream(live_.at(handle).address, StreamId(stream));
  }
  // The streams that the oldest waiting frees wait for are done.
  void complete(std::size_t count) {
    for (; count > 0 && !waiting_.empty(); --count) {
      allocator_.complete_free(Address(waiting_.front()));
      tell({.action = Action::kFreeCompleted, .address = waiting_.front()});
      waiting_.erase(waiting_.begin());
    }
  }
  void empty_cache() override {
    allocator_.empty_cache();
    tell_all_complete();
  }
  void set_limit(std::uint64_t bytes) override {
    allocator_.set_memory_limit(
        bytes == 0 ? std::nullopt : std::optional(Bytes(static_cast<std::int64_t>(bytes))));
  }
  void reset_peaks() override {}  // who compares decides when
  void forget_peak() { allocator_.reset_peak_stats(); }
  void reset_accumulated() { allocator_.reset_accumulated_stats(); }

 private:
  void tell(const Entry& entry) { listener_(entry); }
  void tell_all_complete() {
    for (const std::uint64_t address : std::exchange(waiting_, {})) {
      tell({.action = Action::kFreeCompleted, .address = address});
    }
  }
  void on_segment(const SegmentChange& change) {
    changes_.push_back(change);
    const bool taken =
        change.kind == SegmentChange::Kind::kAlloc || change.kind == SegmentChange::Kind::kMap;
    tell({.action = taken ? Action::kSegmentAlloc : Action::kSegmentFree,
          .address = change.address.raw(),
          .size = static_cast<std::uint64_t>(change.bytes.raw()),
          .stream = change.stream.raw()});
  }

  std::unique_ptr<DeviceModel> device_;
  CachingAllocator allocator_;
  Listener listener_;
  std::unordered_map<std::uint64_t, Allocation> live_;  // by handle
  std::vector<std::uint64_t> waiting_;                  // freed, not complete, oldest first
  std::vector<SegmentChange> changes_;
  std::int64_t unseen_ = 0;
};

}  // namespace peakline::testing
