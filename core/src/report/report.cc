#include <algorithm>
#include <memory>
#include <optional>

#include <peakline/report.h>

#include "allocator/run_settings.h"
#include "report/moment_book.h"
#include "report/moments.h"
#include "report/segment_map.h"
#include "report/spans.h"

namespace peakline {
namespace {

// Where steps begin and end. Only the first ones, the last one and those with a peak matter here.
class StepRanges : public Pass {
 public:
  void on_step_end(const Now& now) override {
    ranges.push_back({begin_, now.event});
    begin_ = now.event + 1;
  }
  std::vector<StepRange> ranges;

 private:
  std::uint64_t begin_ = 0;
};

// What the first read says.
struct Facts {
  Summary summary;
  StepRanges steps;
  PlacesCheck places;
};

Result<TraceReader> open_reader(const SourceOpener& open) {
  Result<std::unique_ptr<Source>> source = open();
  if (!source.ok()) return source.status();
  return TraceReader::open(std::move(source).value());
}

Status read_facts(const SourceOpener& open, const ReportOptions& options, Facts& facts) {
  Result<TraceReader> reader = open_reader(open);
  if (!reader.ok()) return reader.status();
  Result<Summary> summary =
      summarize(*reader, {options.overview_points, {&facts.steps, &facts.places}});
  if (!summary.ok()) return summary.status();
  facts.summary = std::move(*summary);
  return {};
}

std::optional<DeviceId> find_device(const Dictionary& dictionary, const std::string& name) {
  for (std::size_t i = 0; i < dictionary.device_count(); ++i) {
    const DeviceId id(static_cast<std::uint8_t>(i));
    if (dictionary.device(id).name == name) return id;
  }
  return std::nullopt;
}

AllocatorConfig default_config(const RunInfo& info) {
  AllocatorConfig config;
  config.torch = allocator_release(info);
  return config;
}

// The second read, device by device.
struct DevicePasses {
  std::unique_ptr<MomentBook> book;
  std::unique_ptr<SegmentMapPass> map;  // none for the host, which has no segments
};

class Detail {
 public:
  Detail(const Facts& facts, const ReportOptions& options, const Dictionary& dictionary)
      : facts_(facts), options_(options), dictionary_(dictionary), replay_(dictionary) {
    std::vector<std::uint64_t> events;
    for (const DeviceSummary& device : facts.summary.devices) {
      std::vector<Moment> moments =
          choose_moments(device, facts.steps.ranges, facts.summary.events, options);
      for (const Moment& moment : moments) events.push_back(moment.event);
      chosen_.push_back(std::move(moments));
    }
    std::ranges::sort(events);
    events.erase(std::unique(events.begin(), events.end()), events.end());
    spans_ = std::make_unique<SpansPass>(std::move(events), options.spans, options.marks);
    replay_.add(*spans_);
    devices_.resize(facts.summary.devices.size());
  }

  void on(const Event& event) {
    if (added_ < devices_.size()) add_devices();
    for (const DevicePasses& device : devices_) {
      if (device.book != nullptr) device.book->on_event(index_, event.time);
    }
    replay_.on(event);
    ++index_;
  }

  void finish(Report& report) {
    replay_.finish();
    spans_->fill(report);
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      DeviceReport device;
      device.name = facts_.summary.devices[i].name;
      if (devices_[i].book != nullptr) {
        device.total = dictionary_.device(*find_device(dictionary_, device.name)).total;
        devices_[i].book->fill(device, dictionary_);
      }
      if (devices_[i].map != nullptr) device.maps = devices_[i].map->maps(options_.map_blocks);
      report.devices.push_back(std::move(device));
    }
  }

 private:
  // A device is defined before its first event, but maybe not when the file is opened.
  void add_devices() {
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const auto id = find_device(dictionary_, facts_.summary.devices[i].name);
      if (devices_[i].book == nullptr && id) add_device(i, *id);
    }
  }
  void add_device(std::size_t i, DeviceId id) {
    devices_[i].book = std::make_unique<MomentBook>(id, std::move(chosen_[i]),
                                                    options_.alive_changes / devices_.size());
    replay_.add(*devices_[i].book);
    ++added_;
    const DeviceInfo& info = dictionary_.device(id);
    if (info.name.starts_with("cpu")) return;
    devices_[i].map = std::make_unique<SegmentMapPass>(
        id, !facts_.places.complete(id), default_config(facts_.summary.info), info.total);
    replay_.add(*devices_[i].map);
  }

  const Facts& facts_;
  const ReportOptions& options_;
  const Dictionary& dictionary_;
  Replay replay_;
  std::vector<std::vector<Moment>> chosen_;
  std::unique_ptr<SpansPass> spans_;
  std::vector<DevicePasses> devices_;
  std::size_t added_ = 0;
  std::uint64_t index_ = 0;
};

Status read_detail(const SourceOpener& open, const Facts& facts, Report& report) {
  Result<TraceReader> reader = open_reader(open);
  if (!reader.ok()) return reader.status();
  Detail detail(facts, report.options, reader->dictionary());
  // A recording that grows is reported as far as the first read went.
  for (std::uint64_t left = facts.summary.events; left > 0;) {
    const Result<std::span<const Event>> events = reader->next();
    if (!events.ok()) return events.status();
    if (events->empty()) break;
    const std::size_t count =
        static_cast<std::size_t>(std::min<std::uint64_t>(left, events->size()));
    for (const Event& event : events->first(count)) detail.on(event);
    left -= count;
  }
  detail.finish(report);
  report.dictionary = reader->dictionary();
  return {};
}

}  // namespace

Result<Report> build_report(const SourceOpener& open, const ReportOptions& options) {
  Facts facts;
  PEAKLINE_RETURN_IF_ERROR(read_facts(open, options, facts));
  Report report;
  report.options = options;
  PEAKLINE_RETURN_IF_ERROR(read_detail(open, facts, report));
  report.summary = std::move(facts.summary);
  return report;
}

}  // namespace peakline
