#include "ledger/region_spans.h"

#include <algorithm>

namespace peakline {

RegionSpan& RegionSpansPass::span(RegionId region) {
  if (region.raw() >= spans_.size()) spans_.resize(region.raw() + std::size_t{1});
  return spans_[region.raw()];
}

void RegionSpansPass::rise(RegionId region, DeviceId device, Bytes total) {
  std::vector<Bytes>& highest = span(region).highest;
  if (device.raw() >= highest.size()) highest.resize(device.raw() + std::size_t{1});
  highest[device.raw()] = std::max(highest[device.raw()], total);
}

void RegionSpansPass::on_alloc(const Now& now, const Block& block) {
  if (open_.empty()) return;
  const Bytes total = now.ledger.totals(block.device).allocated;
  for (const RegionId region : open_) rise(region, block.device, total);
}

void RegionSpansPass::on_other(const Now& now, const Event& event) {
  const RegionId region = now.context.region(now.thread);
  if (region == RegionId{}) return;
  if (std::holds_alternative<RegionBegin>(event.body)) {
    ++span(region).entered;
    for (std::size_t i = 0; i < now.ledger.device_count(); ++i) {
      const DeviceId device(static_cast<std::uint8_t>(i));
      rise(region, device, now.ledger.totals(device).allocated);
    }
    if (open_.size() < kMostOpen) open_.push_back(region);
  } else if (std::holds_alternative<RegionEnd>(event.body)) {
    const auto found = std::find(open_.rbegin(), open_.rend(), region);
    if (found != open_.rend()) open_.erase(std::next(found).base());
  }
}

void RegionSpansPass::finish(const Now& now) {
  for (std::uint32_t i = 0; i < now.context.region_count(); ++i) {
    const RegionId region(i);
    names_.push_back({now.context.region_path(region), now.context.region_info(region).around});
  }
}

}  // namespace peakline
