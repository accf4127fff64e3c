// What each module saw while it ran: totals when it was entered and left, and the highest in
// between.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <peakline/replay.h>

#include "ledger/max_since.h"

namespace peakline {

// One way of running a module on one device, from its latest call.
struct ModuleSpan {
  std::uint64_t calls = 0;
  Bytes at_enter;  // device totals of the latest call
  Bytes at_leave;
  Bytes peak;          // within the latest call
  Bytes highest_peak;  // over all calls
};

// Device totals at module boundaries. One span per module, pass and device, however long the run
// is.
class ModuleSpansPass : public Pass {
 public:
  using Spans = std::array<ModuleSpan, 3>;  // by ModulePass

  void on_alloc(const Now& now, const Block& block) override;
  void on_module_enter(const Now& now, const ModuleFrame& frame) override;
  void on_module_leave(const Now& now, const ModuleFrame& frame) override;

  // Null when the module never ran, or never while that device was in use.
  [[nodiscard]] const Spans* spans(DeviceId device, ModuleId module) const noexcept;

 private:
  struct Device {
    MaxSince highest;
    std::vector<Spans> spans;  // by module
    // Totals at the enters of modules that are still open, by enter event.
    std::vector<std::pair<std::uint64_t, Bytes>> open;
  };

  Device& device(std::size_t index);

  std::vector<Device> devices_;
};

}  // namespace peakline
