#include "ledger/peak.h"

namespace peakline {
namespace {

MomentSet& set_of(std::vector<MomentSet>& sets, DeviceId device, std::uint64_t moment = 0) {
  while (sets.size() <= device.raw()) {
    sets.emplace_back(DeviceId(static_cast<std::uint8_t>(sets.size())), moment);
  }
  return sets[device.raw()];
}

}  // namespace

Place place_of(const Now& now) {
  return {now.event,
          now.time,
          now.context.progress().steps,
          now.context.op(now.thread).op,
          now.context.module(now.thread),
          now.context.era(now.thread),
          {}};
}

void PeakPass::on_alloc(const Now& now, const Block& block) {
  MomentSet& set = set_of(sets_, block.device);
  if (peaks_.size() < sets_.size()) peaks_.resize(sets_.size());
  DevicePeak& peak = peaks_[block.device.raw()];
  const Bytes total = now.ledger.totals(block.device).allocated;
  if (total <= peak.bytes) return;
  peak.bytes = total;
  peak.place = place_of(now);
  peak.place.call = block.birth.call;
  set.mark(now);
}

void PeakPass::on_free(const Now& now, const Block& block, CategoryId category) {
  set_of(sets_, block.device).on_free(now, block, category);
}

void PeakPass::finish(const Now& now) {
  for (std::size_t i = 0; i < peaks_.size(); ++i) peaks_[i].held = sets_[i].finish(now);
}

std::vector<DevicePeak> PeakPass::peaks_so_far(const Now& now) const {
  std::vector<DevicePeak> peaks = peaks_;
  for (std::size_t i = 0; i < peaks.size(); ++i) peaks[i].held = sets_[i].so_far(now);
  return peaks;
}

void SnapshotPass::on_alloc(const Now&, const Block& block) { set_of(sets_, block.device, event_); }

void SnapshotPass::on_free(const Now& now, const Block& block, CategoryId category) {
  set_of(sets_, block.device, event_).on_free(now, block, category);
}

void SnapshotPass::finish(const Now& now) {
  for (MomentSet& set : sets_) held_.push_back(set.finish(now));
}

}  // namespace peakline
