// Which moments of a device's run a report shows.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include <peakline/report.h>
#include <peakline/summary.h>

namespace peakline {

// A moment is the state after an event. `rank` says how long it keeps what is alive when there is
// too much of it: each round of thinning out drops the moments with the lowest rank that is left.
struct Moment {
  static constexpr std::uint32_t kAlways = std::numeric_limits<std::uint32_t>::max();
  std::uint64_t event = 0;
  std::uint32_t rank = 0;
};

// Steps by their events, from the first read.
struct StepRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};

// In order, no event twice, the last event among them: the highest moment of each stretch of the
// overview, the peaks of the run and of its steps, and closer ones within the first step, the last
// one and the one with the peak.
std::vector<Moment> choose_moments(const DeviceSummary& device, const std::vector<StepRange>& steps,
                                   std::uint64_t events, const ReportOptions& options);

}  // namespace peakline
