#include "ledger/stretch.h"

#include <algorithm>
#include <utility>

#include <peakline/category.h>

namespace peakline {
namespace {

Phase phase_of(Era era) {
  if (era == Era::kOptimizer) return Phase::kOptimizer;
  return era == Era::kForward ? Phase::kForward : Phase::kBackward;
}

ModulePass pass_of(Era era) {
  if (era == Era::kRecompute) return ModulePass::kRecompute;
  return era == Era::kBackward ? ModulePass::kBackward : ModulePass::kForward;
}

}  // namespace

// Writes events at one moment; time within a stretch is not kept.
class Stretch::Writing {
 public:
  Writing(Stretch& stretch, const Now& now, EventFilter::Output& out)
      : stretch_(stretch), time_(now.time), out_(out) {}

  void keep(ThreadId thread, const EventBody& body) { out_.keep({time_, thread, body}); }
  void free(Device& device, const Gone& gone) {
    keep(ThreadId{}, Free{gone.block});
    device.shown -= gone.bytes;
  }

  void alloc(const Block& block, CategoryId category) {
    if (block.op != OpId{}) keep(block.birth.thread, OpBegin{block.op});
    alloc_alone(block);
    if (block.op != OpId{}) keep(block.birth.thread, OpEnd{});
    label(block, category);
  }

  // The last block of a peak comes where it came in the run, so that the peak is found there.
  void alloc_at(const Peak& peak, const Kept& last) {
    const ThreadId thread = peak.thread;
    const Phase phase = phase_of(peak.place.era);
    const bool in_module = peak.place.module != ModuleId{};
    keep(thread, PhaseBegin{phase});
    if (in_module) keep(thread, ModuleEnter{peak.place.module, pass_of(peak.place.era)});
    if (peak.place.op != OpId{}) keep(thread, OpBegin{peak.place.op});
    alloc_alone(last.block);
    if (peak.place.op != OpId{}) keep(thread, OpEnd{});
    if (in_module) keep(thread, ModuleLeave{peak.place.module, pass_of(peak.place.era)});
    label(last.block, last.category);
    keep(thread, PhaseEnd{phase});
  }

  // A step whose events are left out held `peaks`.
  void step(const Step& step) {
    for (std::size_t i = 0; i < step.peaks.size(); ++i) {
      const Bytes rest = step.peaks[i] - stretch_.devices_[i].shown;
      if (rest > Bytes{}) stand_in(DeviceId(static_cast<std::uint8_t>(i)), rest);
    }
    keep(ThreadId{}, StepEnd{});
  }

  void reserved(Device& device, DeviceId id, Bytes bytes) {
    if (device.reserved_shown == bytes) return;
    device.reserved_shown = bytes;
    keep(ThreadId{}, Reserved{bytes, id});
  }

 private:
  void alloc_alone(const Block& block) {
    keep(block.birth.thread,
         Alloc{block.id, block.bytes, block.requested, block.address, block.stream, block.device});
    stretch_.device(block.device).shown += block.bytes;
  }
  void label(const Block& block, CategoryId category) {
    keep(block.birth.thread, Label{block.id, category, block.module, block.name});
    if (block.certainty != Certainty::kExact) {
      keep(block.birth.thread, Sureness{block.id, block.certainty});
    }
  }
  void stand_in(DeviceId device, Bytes bytes) {
    const BlockId block(stretch_.stand_in_++);
    keep(ThreadId{}, Alloc{block, bytes, bytes, Address{}, StreamId{}, device});
    keep(ThreadId{}, Label{block, category::kOther, ModuleId{}, out_.name("left out")});
    keep(ThreadId{}, Free{block});
  }

  Stretch& stretch_;
  TimeNs time_;
  EventFilter::Output& out_;
};

Stretch::Device& Stretch::device(DeviceId id) {
  if (id.raw() >= devices_.size()) devices_.resize(id.raw() + std::size_t{1});
  return devices_[id.raw()];
}

void Stretch::begin(const Now& now) {
  summing_ = true;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    const DeviceTotals& totals = now.ledger.totals(DeviceId(static_cast<std::uint8_t>(i)));
    devices_[i].shown = totals.allocated;
    devices_[i].reserved_shown = totals.reserved;
  }
  start(now);
}

void Stretch::start(const Now& now) {
  first_ = now.event + 1;
  steps_.clear();
  born_.clear();
  labels_.clear();
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    Device& device = devices_[i];
    if (device.peak) device.record = device.peak->bytes;
    device.peak.reset();
    device.gone.clear();
    device.reserved_peak = now.ledger.totals(DeviceId(static_cast<std::uint8_t>(i))).reserved;
  }
}

void Stretch::on_label(const Now& now, const Label& label) {
  if (!summing_) return;
  const Block* block = now.ledger.find(label.block);
  if (block != nullptr && is_old(*block)) labels_.insert_or_assign(label.block.raw(), label);
}

void Stretch::on_alloc(const Now& now, const Block& block) {
  Device& where = device(block.device);
  const Bytes total = now.ledger.totals(block.device).allocated;
  where.step_peak = std::max(where.step_peak, total);
  if (!summing_) {
    where.record = std::max(where.record, total);
    return;
  }
  born_.insert(block.id.raw());
  if (total <= where.record || (where.peak && total <= where.peak->bytes)) return;
  if (where.peak) {  // what was alive at a lower one is of no interest any more
    where.gone.insert(where.gone.end(), where.peak->old_died.begin(), where.peak->old_died.end());
  }
  where.peak = Peak{total, place_of(now), now.thread, {}, {}};
}

void Stretch::on_free(const Now&, const Block& block, CategoryId category) {
  if (!summing_) return;
  Device& where = device(block.device);
  if (is_old(block)) {
    (where.peak ? where.peak->old_died : where.gone).push_back({block.id, block.bytes});
    return;
  }
  born_.erase(block.id.raw());
  if (where.peak && block.birth.event <= where.peak->place.event) {
    where.peak->died.push_back({block, category});
  }
}

void Stretch::on_step_end(const Now& now) {
  Step step{now.event, {}};
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    step.peaks.push_back(devices_[i].step_peak);
    devices_[i].step_peak = now.ledger.totals(DeviceId(static_cast<std::uint8_t>(i))).allocated;
  }
  if (summing_) steps_.push_back(std::move(step));
}

void Stretch::on_reserved(const Now& now, DeviceId id) {
  Device& where = device(id);
  where.reserved_peak = std::max(where.reserved_peak, now.ledger.totals(id).reserved);
}

std::vector<Stretch::Kept> Stretch::alive(const Now& now, std::optional<DeviceId> device,
                                          std::uint64_t last) const {
  std::vector<Kept> out;
  for (const std::uint64_t id : born_) {
    const Block* block = now.ledger.find(BlockId(id));
    if (block == nullptr || block->birth.event > last) continue;
    if (device && block->device != *device) continue;
    out.push_back({*block, resolve_category(*block, now.context, true)});
  }
  return out;
}

void Stretch::write_before(Writing& out) {
  for (const auto& [id, label] : labels_) out.keep(ThreadId{}, label);
  for (Device& device : devices_) {
    for (const Gone& gone : device.gone) out.free(device, gone);
  }
}

void Stretch::write_peak(const Now& now, Device& device, DeviceId id, Writing& out) {
  const Peak& peak = *device.peak;
  std::vector<Kept> held = alive(now, id, peak.place.event);
  for (const Kept& kept : held) born_.erase(kept.block.id.raw());
  held.insert(held.end(), peak.died.begin(), peak.died.end());
  std::ranges::sort(held, {}, [](const Kept& kept) { return kept.block.birth.event; });
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (i + 1 == held.size()) {
      out.alloc_at(peak, held[i]);
    } else {
      out.alloc(held[i].block, held[i].category);
    }
  }
  for (const Kept& kept : peak.died) out.free(device, {kept.block.id, kept.block.bytes});
  for (const Gone& gone : peak.old_died) out.free(device, gone);
}

void Stretch::write_after(const Now& now, Writing& out) {
  std::vector<Kept> rest = alive(now, std::nullopt, now.event);
  std::ranges::sort(rest, {}, [](const Kept& kept) { return kept.block.birth.event; });
  for (const Kept& kept : rest) out.alloc(kept.block, kept.category);
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    const DeviceId id(static_cast<std::uint8_t>(i));
    out.reserved(devices_[i], id, devices_[i].reserved_peak);
    out.reserved(devices_[i], id, now.ledger.totals(id).reserved);
  }
}

void Stretch::end(const Now& now, EventFilter::Output& output) {
  Writing out(*this, now, output);
  write_before(out);
  std::vector<std::size_t> peaks;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].peak) peaks.push_back(i);
  }
  std::ranges::sort(peaks, {}, [&](std::size_t i) { return devices_[i].peak->place.event; });
  auto step = steps_.begin();
  for (const std::size_t i : peaks) {
    for (; step != steps_.end() && step->event < devices_[i].peak->place.event; ++step) {
      out.step(*step);
    }
    write_peak(now, devices_[i], DeviceId(static_cast<std::uint8_t>(i)), out);
  }
  for (; step != steps_.end(); ++step) out.step(*step);
  write_after(now, out);
  start(now);
}

}  // namespace peakline
