// The moment each device held the most, and what it held then.
#pragma once

#include <cstdint>
#include <vector>

#include <peakline/replay.h>

#include "ledger/moment_set.h"

namespace peakline {

// Where in the program a moment lies.
struct Place {
  std::uint64_t event = 0;
  TimeNs time;
  std::uint32_t step = 0;  // steps completed before it
  OpId op;
  ModuleId module;
  Era era = Era::kForward;
  CallStack call;
};

struct DevicePeak {
  Bytes bytes;
  Place place;             // the first moment with that many bytes
  std::vector<Held> held;  // sums to `bytes`
};

// Peak of each device over the whole recording.
class PeakPass : public Pass {
 public:
  void on_alloc(const Now& now, const Block& block) override;
  void on_free(const Now& now, const Block& block, CategoryId category) override;
  void finish(const Now& now) override;

  // By device id; a device that never held anything has no entry or a zero one.
  [[nodiscard]] const std::vector<DevicePeak>& peaks() const noexcept { return peaks_; }
  // The same before the stream is over.
  [[nodiscard]] std::vector<DevicePeak> peaks_so_far(const Now& now) const;

 private:
  std::vector<DevicePeak> peaks_;
  std::vector<MomentSet> sets_;
};

// What each device held after a given event.
class SnapshotPass : public Pass {
 public:
  explicit SnapshotPass(std::uint64_t event) : event_(event) {}

  void on_alloc(const Now& now, const Block& block) override;
  void on_free(const Now& now, const Block& block, CategoryId category) override;
  void finish(const Now& now) override;

  // By device id.
  [[nodiscard]] const std::vector<std::vector<Held>>& held() const noexcept { return held_; }

 private:
  std::uint64_t event_;
  std::vector<MomentSet> sets_;
  std::vector<std::vector<Held>> held_;
};

Place place_of(const Now& now);

}  // namespace peakline
