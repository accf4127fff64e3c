// What each op allocated.
#pragma once

#include <cstdint>
#include <vector>

#include <peakline/replay.h>

namespace peakline {

struct OpUsage {
  std::uint64_t allocations = 0;
  Bytes allocated;  // over the whole recording
  Bytes largest;    // single allocation
};

// Allocations by op, per device.
class OpUsagePass : public Pass {
 public:
  void on_alloc(const Now& now, const Block& block) override;

  // By op id; may be shorter than the dictionary.
  [[nodiscard]] std::vector<OpUsage> usage(DeviceId device) const;

 private:
  std::vector<std::vector<OpUsage>> devices_;
};

}  // namespace peakline
