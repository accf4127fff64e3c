// The allocator's segments and the blocks in them, at the moments that matter.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include <peakline/allocator.h>
#include <peakline/replay.h>
#include <peakline/report.h>

namespace peakline {

// Blocks and segments at one moment, which may move forward at no cost (see MomentSet): what was
// there then is remembered as it goes, the rest is there when the stream is over.
class PlacedMoment {
 public:
  void mark(const Now& now) {
    event_ = now.event;
    time_ = now.time;
    blocks_.clear();
    segments_.clear();
  }
  void block_gone(std::uint64_t born, std::uint64_t gone, Address address, Bytes bytes,
                  CategoryId category);
  void segment_gone(std::uint64_t born, std::uint64_t gone, Address address, Bytes bytes,
                    StreamId stream);
  // At most `most_blocks` are kept for drawing, those of the largest segments first.
  [[nodiscard]] SegmentMap finish(std::size_t most_blocks);

 private:
  struct Placed {
    Address address;
    Bytes bytes;
    CategoryId category;
  };

  std::uint64_t event_ = 0;
  TimeNs time_;
  std::vector<Placed> blocks_;
  std::vector<MapSegment> segments_;
};

// Follows one device's segments: those that the recording names, or, when it names none, those that
// the simulated allocator takes. Makes a map of the peak and one of the highest reserved bytes.
class SegmentMapPass : public Pass {
 public:
  // `simulated`: take the addresses from an allocator with this configuration.
  SegmentMapPass(DeviceId device, bool simulated, const AllocatorConfig& config, Bytes total);

  void on_segment(const Now& now, const SegmentAlloc& taken) override;
  void on_segment(const Now& now, const SegmentFree& returned) override;
  void on_alloc(const Now& now, const Block& block) override;
  void on_free(const Now& now, const Block& block, CategoryId category) override;
  void on_other(const Now& now, const Event& event) override;
  void on_reserved(const Now& now, DeviceId device) override;
  void finish(const Now& now) override;

  [[nodiscard]] std::vector<SegmentMap> maps(std::size_t most_blocks);

 private:
  struct Segment {
    Bytes bytes;
    StreamId stream;
    std::uint64_t born = 0;
  };
  struct Place {
    Address address;
    Bytes bytes;
  };

  void segment_taken(std::uint64_t event, Address address, Bytes bytes, StreamId stream);
  void segment_returned(std::uint64_t event, Address address, Bytes bytes);
  void block_gone(const Block& block, std::uint64_t gone, CategoryId category);
  void mark_if_higher(const Now& now);

  DeviceId device_;
  std::unique_ptr<DeviceModel> driver_;  // of the simulation
  std::unique_ptr<CachingAllocator> allocator_;
  std::unordered_map<std::uint64_t, Place> places_;  // of simulated blocks
  std::map<Address, Segment> segments_;
  std::uint64_t event_ = 0;
  Bytes reserved_;
  Bytes highest_reserved_;
  Bytes highest_allocated_;
  bool failed_ = false;  // the simulated device was full
  PlacedMoment at_peak_;
  PlacedMoment at_reserved_;
};

// Finds out, in the first read, whether the recording's own segments can be drawn: every block of a
// device lies in one of them.
class PlacesCheck : public Pass {
 public:
  void on_segment(const Now& now, const SegmentAlloc& taken) override;
  void on_alloc(const Now& now, const Block& block) override;
  [[nodiscard]] bool complete(DeviceId device) const;

 private:
  struct Device {
    std::map<Address, Bytes> segments;
    std::uint64_t outside = 0;
    std::uint64_t inside = 0;
  };
  Device& at(DeviceId device);

  std::vector<Device> devices_;
};

}  // namespace peakline
