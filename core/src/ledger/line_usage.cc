#include "ledger/line_usage.h"

#include <algorithm>

namespace peakline {

LinePlace line_place(const Dictionary& dictionary, const CallStack& call) {
  const LineId own = dictionary.own_line(call.stack);
  const LineId forward = dictionary.own_line(call.forward);
  return forward == LineId{} ? LinePlace{own, LineId{}} : LinePlace{forward, own};
}

void LineUsagePass::on_alloc(const Now& now, const Block& block) {
  const CallStack& call = block.birth.call;
  if (call.stack == StackId{} && call.forward == StackId{}) return;
  dictionary_ = &now.dictionary;
  if (block.device.raw() >= devices_.size()) devices_.resize(block.device.raw() + std::size_t{1});
  LineUsage& usage =
      devices_[block.device.raw()][std::uint64_t{call.stack.raw()} << 32 | call.forward.raw()];
  ++usage.allocations;
  usage.allocated += block.bytes;
  usage.largest = std::max(usage.largest, block.bytes);
}

std::map<LinePlace, LineUsage> LineUsagePass::usage(DeviceId device) const {
  std::map<LinePlace, LineUsage> lines;
  if (device.raw() >= devices_.size()) return lines;
  for (const auto& [stacks, usage] : devices_[device.raw()]) {
    const CallStack call{StackId(static_cast<std::uint32_t>(stacks >> 32)),
                         StackId(static_cast<std::uint32_t>(stacks))};
    LineUsage& line = lines[line_place(*dictionary_, call)];
    line.allocations += usage.allocations;
    line.allocated += usage.allocated;
    line.largest = std::max(line.largest, usage.largest);
  }
  return lines;
}

}  // namespace peakline
