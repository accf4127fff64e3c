#include "ledger/op_usage.h"

#include <algorithm>

#include "base/capped.h"

namespace peakline {

void OpUsagePass::on_alloc(const Now& now, const Block& block) {
  if (block.op.raw() >= now.dictionary.op_count()) return;
  if (block.device.raw() >= devices_.size()) devices_.resize(block.device.raw() + std::size_t{1});
  std::vector<OpUsage>& ops = devices_[block.device.raw()];
  if (block.op.raw() >= ops.size()) ops.resize(now.dictionary.op_count());
  OpUsage& usage = ops[block.op.raw()];
  ++usage.allocations;
  usage.allocated = capped_sum(usage.allocated, block.bytes);
  usage.largest = std::max(usage.largest, block.bytes);
}

std::vector<OpUsage> OpUsagePass::usage(DeviceId device) const {
  return device.raw() < devices_.size() ? devices_[device.raw()] : std::vector<OpUsage>{};
}

}  // namespace peakline
