// The allocation that failed last, and what was alive then.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <peakline/replay.h>

#include "ledger/peak.h"

namespace peakline {

struct Failure {
  Bytes requested;
  Bytes allocated;  // without it
  Bytes reserved;
  Place place;
  std::vector<Held> held;  // sums to `allocated`
};

class FailurePass : public Pass {
 public:
  void on_free(const Now& now, const Block& block, CategoryId category) override;
  void on_other(const Now& now, const Event& event) override;
  void finish(const Now& now) override;

  // None when none failed on it.
  [[nodiscard]] const Failure* of(DeviceId device) const noexcept;

 private:
  struct Device {
    std::optional<Failure> failure;
    MomentSet alive;
  };
  std::vector<Device> devices_;
};

}  // namespace peakline
