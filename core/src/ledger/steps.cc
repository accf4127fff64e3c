#include "ledger/steps.h"

#include <algorithm>

namespace peakline {

StepPeak& StepsPass::current(DeviceId device) {
  if (device.raw() >= current_.size()) {
    current_.resize(device.raw() + std::size_t{1});
    // A device that appears late held nothing in the steps before.
    steps_.resize(current_.size(), std::vector<StepPeak>(std::min(completed_, kMaxSteps)));
  }
  return current_[device.raw()];
}

void StepsPass::on_alloc(const Now& now, const Block& block) {
  StepPeak& peak = current(block.device);
  const Bytes total = now.ledger.totals(block.device).allocated;
  if (total > peak.allocated) {
    peak.allocated = total;
    peak.event = now.event;
  }
  touched_ = true;
}

void StepsPass::on_reserved(const Now& now, DeviceId device) {
  StepPeak& peak = current(device);
  peak.reserved = std::max(peak.reserved, now.ledger.totals(device).reserved);
}

void StepsPass::close(const Now& now) {
  const bool listed = completed_ < kMaxSteps;
  if (!listed) ++unlisted_;
  for (std::size_t i = 0; i < current_.size(); ++i) {
    if (listed) steps_[i].push_back(current_[i]);
    const DeviceTotals& totals = now.ledger.totals(DeviceId(static_cast<std::uint8_t>(i)));
    current_[i] = {totals.allocated, totals.reserved, now.event};
  }
  touched_ = false;
}

void StepsPass::on_step_end(const Now& now) {
  close(now);
  ++completed_;
}

void StepsPass::finish(const Now& now) {
  if (touched_ || completed_ == 0) close(now);
}

}  // namespace peakline
