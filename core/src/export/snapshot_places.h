// Where the blocks of a device lie: in the recording's own segments, or in a simulated allocator's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include <peakline/allocator.h>
#include <peakline/device_model.h>
#include <peakline/replay.h>

namespace peakline {

// What the allocator did, in the words of torch's memory history.
struct HistoryStep {
  enum class Action : std::uint8_t {
    kAlloc,
    kFreeRequested,
    kFreeCompleted,
    kSegmentAlloc,
    kSegmentFree,
    kOutOfMemory
  };
  Action action = Action::kAlloc;
  Address address;
  Bytes bytes;  // as the history counts them: what was asked for, where that tells the block's size
  StreamId stream;
  const Block* block = nullptr;  // of an allocation
  CategoryId category;           // likewise
};

// A block in a segment at the end.
struct PlacedBlock {
  enum class State : std::uint8_t { kAllocated, kPendingFree };
  Bytes bytes;
  Bytes requested;
  StreamId stream;
  State state = State::kAllocated;
  std::uint32_t stack = 0;  // whatever the caller said when it was allocated
};

struct PlacedSegment {
  Bytes bytes;
  StreamId stream;
};

// Follows one device and tells its history. Not thread-safe.
class PlacesPass : public Pass {
 public:
  // Tells a step; for an allocation the answer is kept as the block's stack.
  using Teller = std::function<std::uint32_t(const Now&, const HistoryStep&)>;

  // `simulated`: with a configuration the places are those of a simulated allocator.
  PlacesPass(DeviceId device, const AllocatorConfig* simulated,
             std::function<CategoryId()> next_category, Teller tell);

  void on_alloc(const Now& now, const Block& block) override;
  void on_free(const Now& now, const Block& block, CategoryId category) override;
  void on_segment(const Now& now, const SegmentAlloc& taken) override;
  void on_segment(const Now& now, const SegmentFree& returned) override;
  void on_other(const Now& now, const Event& event) override;
  void finish(const Now& now) override;

  [[nodiscard]] const std::map<std::uint64_t, PlacedBlock>& blocks() const { return blocks_; }
  [[nodiscard]] const std::map<std::uint64_t, PlacedSegment>& segments() const { return segments_; }
  // The simulated device could not place everything.
  [[nodiscard]] bool failed() const noexcept { return failed_; }

 private:
  struct Freed {
    BlockId block;
    std::uint64_t address = 0;
    Bytes bytes;
    StreamId stream;
  };

  void settle(const Now& now, bool waits);
  void complete(const Now& now, const Freed& freed);
  void complete_within(const Now& now, std::uint64_t begin, std::uint64_t end);
  void segment_taken(const Now& now, Address address, Bytes bytes, StreamId stream);
  void segment_returned(const Now& now, Address address, Bytes bytes);
  std::optional<std::uint64_t> place(const Block& block, Bytes& bytes);

  DeviceId device_;
  std::function<CategoryId()> next_category_;
  Teller tell_;
  std::unique_ptr<DeviceModel> driver_;  // of the simulation
  std::unique_ptr<CachingAllocator> allocator_;
  const Now* now_ = nullptr;                                 // while the simulated allocator works
  std::map<std::uint64_t, PlacedBlock> blocks_;              // by address; waiting ones, too
  std::map<std::uint64_t, PlacedSegment> segments_;          // by address
  std::unordered_map<std::uint64_t, std::uint64_t> places_;  // addresses of live blocks, by id
  std::unordered_map<std::uint64_t, Freed> waiting_;         // freed, used on other streams, by id
  std::unordered_map<std::uint64_t, bool> used_elsewhere_;   // live blocks with other streams
  std::optional<Freed> pending_;                             // a free that may turn out to wait
  bool failed_ = false;
};

}  // namespace peakline
