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
  void free(BlockId block);
  void free_completed(BlockId block);
  void stream_use(BlockId block, StreamId stream);
  void empty_cache();
  // The recorded run took or returned a segment.
  void recorded(const SegmentChange& change);

  [[nodiscard]] bool failed() const noexcept { return failed_; }
  [[nodiscard]] const CachingAllocator& allocator() const noexcept { return *allocator_; }
  [[nodiscard]] SettingOutcome outcome() const;
  [[nodiscard]] std::optional<RecordedSegments> compare_with_record() const;

 private:
  std::unique_ptr<RecordedDevice> device_;
  std::unique_ptr<CachingAllocator> allocator_;
  std::unordered_map<std::uint64_t, Address> live_;
  std::unordered_map<std::uint64_t, Address> waiting_;
  std::vector<SegmentChange> changes_;
  std::vector<SegmentChange> recorded_;
  MemoryUse at_peak_;
  bool failed_ = false;
};

}  // namespace peakline
