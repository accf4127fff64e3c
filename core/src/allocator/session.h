// One setting, driven by the events of a recording.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <peakline/allocator.h>
#include <peakline/replay.h>
#include <peakline/simulate.h>

#include "allocator/recorded_device.h"

namespace peakline {

// Where the reserved bytes of `allocator` are now.
MemoryUse memory_use(const CachingAllocator& allocator);

// An allocator with its device, fed block by block. After the first failed allocation it stands
// still: the program would have ended there.
class Session {
 public:
  Session(const AllocatorConfig& config, const DriverOptions& device, std::optional<Bytes> limit);

  // False when the allocation failed, now or before.
  bool alloc(BlockId block, Bytes requested, StreamId stream);
  // Takes effect with the next call: a stream_use() that follows says that the block waits.
  void free(BlockId block);
  // The last free was none: the block is still there.
  void keep() noexcept { freed_.reset(); }
  // Takes effect with the next call, too: inside a retry it is the allocation that waits for it.
  void free_completed(BlockId block);
  // The recorded run gave its cache back to serve the next allocation.
  void retried() noexcept { retried_ = true; }
  void stream_use(BlockId block, StreamId stream);
  void empty_cache();
  // The recorded run took or returned a segment.
  void recorded(const SegmentChange& change);
  // The recording is over.
  void finish() { catch_up(); }

  [[nodiscard]] bool failed() const noexcept { return failed_; }
  // Blocks that are freed and not complete.
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }
  [[nodiscard]] const CachingAllocator& allocator() const noexcept { return *allocator_; }
  [[nodiscard]] SettingOutcome outcome() const;
  [[nodiscard]] std::optional<RecordedSegments> compare_with_record() const;

 private:
  struct Held {
    Address address;
    StreamId stream;
    bool elsewhere = false;  // other streams use it, too
  };

  void apply_free();
  void apply_completed();
  void catch_up();

  std::unique_ptr<RecordedDevice> device_;
  std::unique_ptr<CachingAllocator> allocator_;
  std::unordered_map<std::uint64_t, Held> live_;
  std::optional<BlockId> freed_;                        // the last one, not yet applied
  std::unordered_map<std::uint64_t, Address> waiting_;  // freed, for other streams to be done
  std::vector<SegmentChange> changes_;
  std::vector<SegmentChange> recorded_;
  std::vector<BlockId> completed_;  // not yet applied
  MemoryUse at_peak_;
  bool retried_ = false;
  bool failed_ = false;
};

}  // namespace peakline
