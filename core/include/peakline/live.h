// What a run that still goes on can say at little cost.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <peakline/status.h>
#include <peakline/summary.h>
#include <peakline/trace.h>
#include <peakline/units.h>

namespace peakline {

struct LiveDevice {
  std::string name;
  Bytes allocated;  // now
  Bytes peak_allocated;
  Bytes step_peak;  // the highest within the last whole step; 0 before it
  // None when the producer cannot see it.
  std::optional<Bytes> reserved;
  std::optional<Bytes> peak_reserved;
  std::vector<NamedBytes> by_category;  // at the peak, as far as it is known by now; sums to it
};

struct LiveTotals {
  std::uint64_t steps_completed = 0;
  std::vector<LiveDevice> devices;  // accelerators before the host, then largest peak first
};

// Follows a recording while it is written: a question reads what has come since the last one, so
// asking after every step costs in all as much as reading the recording once. Memory is bounded by
// the live blocks. Not thread-safe.
class LiveRun {
 public:
  using Open = std::function<Result<std::unique_ptr<Source>>()>;
  explicit LiveRun(Open open);
  ~LiveRun();
  LiveRun(const LiveRun&) = delete;
  LiveRun& operator=(const LiveRun&) = delete;

  Result<LiveTotals> now();

 private:
  class Impl;
  Open open_;
  std::unique_ptr<Impl> impl_;  // from the first event on
};

}  // namespace peakline
