#include "ledger/module_spans.h"

#include <algorithm>

namespace peakline {

ModuleSpansPass::Device& ModuleSpansPass::device(std::size_t index) {
  if (index >= devices_.size()) devices_.resize(index + 1);
  return devices_[index];
}

void ModuleSpansPass::on_alloc(const Now& now, const Block& block) {
  if (now.context.outside_modules()) return;
  device(block.device.raw()).highest.add(now.event, now.ledger.totals(block.device).allocated);
}

void ModuleSpansPass::on_module_enter(const Now& now, const ModuleFrame& frame) {
  for (std::size_t i = 0; i < now.ledger.device_count(); ++i) {
    const Bytes total = now.ledger.totals(DeviceId(static_cast<std::uint8_t>(i))).allocated;
    Device& seen = device(i);
    seen.highest.add(now.event, total);
    seen.open.emplace_back(frame.enter_event, total);
  }
}

void ModuleSpansPass::on_module_leave(const Now& now, const ModuleFrame& frame) {
  // An id that was never defined has no row; the context has counted it.
  if (frame.module.raw() >= now.dictionary.module_count()) return;
  for (std::size_t i = 0; i < now.ledger.device_count(); ++i) {
    Device& seen = device(i);
    if (seen.spans.size() <= frame.module.raw()) seen.spans.resize(now.dictionary.module_count());
    ModuleSpan& span = seen.spans[frame.module.raw()][static_cast<std::size_t>(frame.pass)];
    ++span.calls;
    span.at_leave = now.ledger.totals(DeviceId(static_cast<std::uint8_t>(i))).allocated;
    span.peak = seen.highest.since(frame.enter_event);
    span.highest_peak = std::max(span.highest_peak, span.peak);

    // Absent when the device was first used inside this module: then the module began with nothing.
    const auto open = std::find_if(seen.open.rbegin(), seen.open.rend(), [&](const auto& entry) {
      return entry.first == frame.enter_event;
    });
    span.at_enter = open == seen.open.rend() ? Bytes{} : open->second;
    if (open != seen.open.rend()) seen.open.erase(std::next(open).base());
    if (now.context.outside_modules()) seen.highest.forget();
  }
}

const ModuleSpansPass::Spans* ModuleSpansPass::spans(DeviceId device,
                                                     ModuleId module) const noexcept {
  if (device.raw() >= devices_.size()) return nullptr;
  const std::vector<Spans>& spans = devices_[device.raw()].spans;
  return module.raw() < spans.size() ? &spans[module.raw()] : nullptr;
}

}  // namespace peakline
