// A device's totals over the whole recording, in a bounded number of buckets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <peakline/category.h>
#include <peakline/replay.h>

namespace peakline {

using CategoryArray = std::array<Bytes, category::kMaxCategories>;

// One stretch of events. Totals are those of the device over the stretch.
struct TimelineBucket {
  std::uint64_t first_event = 0;
  TimeNs time;                      // of its first event, or of the first change after it began
  Bytes lowest;                     // allocated
  Bytes highest;                    // allocated
  Bytes reserved;                   // highest
  std::uint64_t highest_event = 0;  // the first after which `highest` was allocated
};

// One level of detail: buckets of equal numbers of events, and what each category held as a bucket
// began.
struct TimelineLevel {
  std::uint64_t events_per_bucket = 1;
  std::vector<TimelineBucket> buckets;
  std::vector<CategoryArray> at_start;  // sums to the device's total then; same length as buckets
};

// Keeps between kMaxBuckets / 2 and kMaxBuckets buckets of the finest level; when they are full,
// pairs are merged and each covers twice as many events. Categories are booked when a block dies,
// at its birth and death, so they are those of its whole life.
class TimelinePass : public Pass {
 public:
  static constexpr std::size_t kMaxBuckets = 4096;

  void on_alloc(const Now& now, const Block& block) override;
  void on_free(const Now& now, const Block& block, CategoryId category) override;
  void on_reserved(const Now& now, DeviceId device) override;
  void finish(const Now& now) override;

  // Levels of detail for a device, finest first, each half as long as the one before.
  [[nodiscard]] std::vector<TimelineLevel> levels(DeviceId device) const;

 private:
  struct Range {
    Bytes lowest;
    Bytes highest;
    Bytes reserved;
    std::uint64_t highest_event = 0;
  };
  struct Device {
    std::vector<Range> ranges;
    std::vector<CategoryArray> change;  // net bytes booked within the bucket
    Bytes allocated;                    // after the last event seen
    Bytes reserved;
  };

  Device& device(DeviceId id);
  void advance(const Now& now);
  void observe(const Now& now, DeviceId id);
  void book(const Block& block, CategoryId category, std::uint64_t event, Bytes bytes);
  void halve();
  [[nodiscard]] TimelineLevel finest(const Device& device) const;

  std::vector<Device> devices_;
  std::vector<TimeNs> starts_;  // one per bucket, common to all devices
  std::uint64_t width_ = 1;     // events per bucket
};

}  // namespace peakline
