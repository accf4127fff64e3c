// What each line of the program allocated.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include <peakline/replay.h>

namespace peakline {

// The line that a block is put down to. In backward that is the line of the forward call, and
// `caller` is the one that called backward; else there is no caller.
struct LinePlace {
  LineId line;
  LineId caller;
  auto operator<=>(const LinePlace&) const = default;  // NOLINT(modernize-use-nullptr)
};
LinePlace line_place(const Dictionary& dictionary, const CallStack& call);

struct LineUsage {
  std::uint64_t allocations = 0;
  Bytes allocated;  // over the whole recording
  Bytes largest;    // single allocation
};

// Allocations by line, per device. Those without a stack are left out.
class LineUsagePass : public Pass {
 public:
  void on_alloc(const Now& now, const Block& block) override;

  [[nodiscard]] std::map<LinePlace, LineUsage> usage(DeviceId device) const;

 private:
  std::vector<std::unordered_map<std::uint64_t, LineUsage>> devices_;  // by stack and forward stack
  const Dictionary* dictionary_ = nullptr;
};

}  // namespace peakline
