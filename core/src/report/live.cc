#include <algorithm>
#include <utility>

#include <peakline/live.h>
#include <peakline/replay.h>

#include "ledger/peak.h"
#include "report/module_table.h"
#include "trace/whole_chunks.h"

namespace peakline {
namespace {

// The highest of what is allocated in each step, and of what is reserved in all.
class HighestPass : public Pass {
 public:
  struct Highest {
    Bytes in_step;
    Bytes in_last_step;
    Bytes reserved;
  };

  void on_alloc(const Now& now, const Block& block) override {
    Highest& highest = of(block.device);
    highest.in_step = std::max(highest.in_step, now.ledger.totals(block.device).allocated);
  }
  void on_reserved(const Now& now, DeviceId device) override {
    Highest& highest = of(device);
    highest.reserved = std::max(highest.reserved, now.ledger.totals(device).reserved);
  }
  void on_step_end(const Now& now) override {
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const DeviceId device(static_cast<std::uint8_t>(i));
      devices_[i].in_last_step =
          std::exchange(devices_[i].in_step, now.ledger.totals(device).allocated);
    }
  }

  [[nodiscard]] Highest at(DeviceId device) const {
    return device.raw() < devices_.size() ? devices_[device.raw()] : Highest{};
  }

 private:
  Highest& of(DeviceId device) {
    if (devices_.size() <= device.raw()) devices_.resize(device.raw() + std::size_t{1});
    return devices_[device.raw()];
  }

  std::vector<Highest> devices_;
};

bool is_host(const LiveDevice& device) { return device.name.starts_with("cpu"); }

}  // namespace

class LiveRun::Impl {
 public:
  explicit Impl(TraceReader reader) : reader_(std::move(reader)), replay_(reader_.dictionary()) {
    replay_.add(peak_);
    replay_.add(highest_);
  }

  Status read_on() {
    for (;;) {
      const Result<std::span<const Event>> events = reader_.next();
      if (!events.ok()) return events.status();
      if (events->empty()) return {};
      for (const Event& event : *events) replay_.on(event);
    }
  }

  [[nodiscard]] LiveTotals totals() const {
    const Now now{replay_.event_count(), replay_.last_time(), ThreadId{},
                  replay_.ledger(),      replay_.context(),   reader_.dictionary()};
    const std::vector<DevicePeak> peaks = peak_.peaks_so_far(now);
    LiveTotals out;
    out.steps_completed = replay_.context().progress().steps;
    for (std::size_t i = 0; i < peaks.size(); ++i) {
      if (peaks[i].bytes == Bytes{}) continue;
      out.devices.push_back(device(DeviceId(static_cast<std::uint8_t>(i)), peaks[i]));
    }
    std::stable_sort(out.devices.begin(), out.devices.end(),
                     [](const LiveDevice& a, const LiveDevice& b) {
                       return std::pair(!is_host(a), a.peak_allocated) >
                              std::pair(!is_host(b), b.peak_allocated);
                     });
    return out;
  }

 private:
  [[nodiscard]] LiveDevice device(DeviceId id, const DevicePeak& peak) const {
    const DeviceTotals& totals = replay_.ledger().totals(id);
    const HighestPass::Highest highest = highest_.at(id);
    LiveDevice out;
    out.name = reader_.dictionary().device(id).name;
    out.allocated = totals.allocated;
    out.peak_allocated = peak.bytes;
    out.step_peak = highest.in_last_step;
    if (totals.knows_reserved) {
      out.reserved = totals.reserved;
      out.peak_reserved = highest.reserved;
    }
    out.by_category = by_category(reader_.dictionary(), peak.held, CategoryLevel::kTop);
    return out;
  }

  TraceReader reader_;
  Replay replay_;
  PeakPass peak_;
  HighestPass highest_;
};

LiveRun::LiveRun(Open open) : open_(std::move(open)) {}
LiveRun::~LiveRun() = default;

Result<LiveTotals> LiveRun::now() {
  if (!impl_) {
    Result<std::unique_ptr<Source>> source = open_();
    if (!source.ok()) return source.status();
    Result<TraceReader> reader =
        TraceReader::open(std::make_unique<trace::WholeChunks>(std::move(*source)));
    // Nothing has happened yet: there is no whole chunk of events.
    if (reader.status().code() == StatusCode::kInvalidInput) return LiveTotals{};
    if (!reader.ok()) return reader.status();
    impl_ = std::make_unique<Impl>(std::move(*reader));
  }
  PEAKLINE_RETURN_IF_ERROR(impl_->read_on());
  return impl_->totals();
}

}  // namespace peakline
