#include "ledger/failure.h"

namespace peakline {

void FailurePass::on_free(const Now& now, const Block& block, CategoryId category) {
  if (block.device.raw() >= devices_.size()) return;
  Device& device = devices_[block.device.raw()];
  if (device.failure) device.alive.on_free(now, block, category);
}

void FailurePass::on_other(const Now& now, const Event& event) {
  const auto* oom = std::get_if<OutOfMemory>(&event.body);
  if (oom == nullptr || oom->kind != OutOfMemory::Kind::kFailed) return;
  while (oom->device.raw() >= devices_.size()) {
    devices_.push_back(
        {std::nullopt, MomentSet(DeviceId(static_cast<std::uint8_t>(devices_.size())))});
  }
  const DeviceTotals& totals = now.ledger.totals(oom->device);
  Device& device = devices_[oom->device.raw()];
  device.failure = Failure{oom->requested, totals.allocated, totals.reserved, place_of(now), {}};
  device.failure->place.call = now.context.call(now.thread);
  device.alive.mark(now);
}

void FailurePass::finish(const Now& now) {
  for (Device& device : devices_) {
    if (device.failure) device.failure->held = device.alive.finish(now);
  }
}

const Failure* FailurePass::of(DeviceId device) const noexcept {
  const bool known = device.raw() < devices_.size() && devices_[device.raw()].failure;
  return known ? &*devices_[device.raw()].failure : nullptr;
}

}  // namespace peakline
