#include <algorithm>
#include <array>
#include <charconv>

#include <peakline/summary.h>

#include "ledger/era_name.h"
#include "ledger/failure.h"
#include "ledger/growth.h"
#include "ledger/line_usage.h"
#include "ledger/module_spans.h"
#include "ledger/op_usage.h"
#include "ledger/peak.h"
#include "ledger/region_spans.h"
#include "ledger/steps.h"
#include "ledger/timeline.h"
#include "report/categories.h"
#include "report/line_table.h"
#include "report/module_table.h"

namespace peakline {
namespace {

// Every question at once; each is a pass of its own.
struct Passes {
  PeakPass peak;
  ModuleSpansPass modules;
  OpUsagePass ops;
  StepsPass steps;
  TimelinePass timeline;
  LineUsagePass lines;
  RegionSpansPass regions;
  GrowthPass growth;
  FailurePass failure;

  [[nodiscard]] std::array<Pass*, 9> all() {
    return {&peak, &modules, &ops, &steps, &timeline, &lines, &regions, &growth, &failure};
  }
};

// Remembers what the ledger and context say at the end; they are gone when the replay is.
class EndPass : public Pass {
 public:
  void finish(const Now& now) override {
    events = now.event;
    time = now.time;
    for (std::size_t i = 0; i < now.ledger.device_count(); ++i) {
      totals.push_back(now.ledger.totals(DeviceId(static_cast<std::uint8_t>(i))));
    }
    for (std::uint32_t i = 0; i < now.dictionary.op_count(); ++i) {
      op_calls.push_back(now.context.calls(OpId(i)));
    }
  }

  std::uint64_t events = 0;
  TimeNs time;
  std::vector<DeviceTotals> totals;
  std::vector<std::uint64_t> op_calls;
};

std::optional<std::int64_t> number(const RunInfo& info, const std::string& key) {
  const auto found = info.find(key);
  if (found == info.end()) return std::nullopt;
  std::int64_t value = 0;
  const char* end = found->second.data() + found->second.size();
  const auto [rest, error] = std::from_chars(found->second.data(), end, value);
  if (error != std::errc{} || rest != end) return std::nullopt;
  return value;
}

bool is_host(const DeviceSummary& device) { return device.name.starts_with("cpu"); }

std::vector<OpRow> op_rows(const Dictionary& dictionary, std::span<const Held> held,
                           const std::vector<OpUsage>& usage,
                           const std::vector<std::uint64_t>& calls) {
  std::vector<OpRow> rows(usage.size());
  for (std::size_t i = 0; i < usage.size(); ++i) {
    rows[i] = {std::string(dictionary.op(OpId(static_cast<std::uint32_t>(i)))),
               i < calls.size() ? calls[i] : 0,
               usage[i].allocations,
               Bytes{},
               usage[i].allocated,
               usage[i].largest};
  }
  for (const Held& block : held) {
    if (block.op.raw() < rows.size()) rows[block.op.raw()].at_peak += block.bytes;
  }
  // Row 0 is what was allocated outside of any op.
  std::erase_if(rows, [](const OpRow& row) { return row.name.empty() || row.allocations == 0; });
  std::stable_sort(rows.begin(), rows.end(), [](const OpRow& a, const OpRow& b) {
    return std::pair(a.at_peak, a.allocated) > std::pair(b.at_peak, b.allocated);
  });
  return rows;
}

TimelineView timeline_view(const Dictionary& dictionary, const std::vector<TimelineLevel>& levels,
                           std::size_t most) {
  TimelineView view;
  if (levels.empty()) return view;
  const auto fits = std::find_if(levels.begin(), levels.end(), [&](const TimelineLevel& level) {
    return level.buckets.size() <= std::max<std::size_t>(most, 1);
  });
  const TimelineLevel& level = fits == levels.end() ? levels.back() : *fits;
  view.events_per_point = level.events_per_bucket;
  const std::vector<CategoryId> shown = top_categories(dictionary);
  for (const CategoryId id : shown) view.categories.push_back(dictionary.category(id).name);
  for (std::size_t i = 0; i < level.buckets.size(); ++i) {
    const TimelineBucket& bucket = level.buckets[i];
    CategoryArray top{};
    add_to_top(top, level.at_start[i], dictionary);
    TimelinePoint point{
        bucket.first_event,   bucket.time, bucket.lowest, bucket.highest, bucket.reserved,
        bucket.highest_event, {}};
    for (const CategoryId id : shown) point.by_category.push_back(top[id.raw()]);
    view.points.push_back(std::move(point));
  }
  return view;
}

void fill_peak(DeviceSummary& out, const Dictionary& dictionary, const DevicePeak& peak) {
  out.peak_allocated = peak.bytes;
  out.peak_event = peak.place.event;
  out.peak_time = peak.place.time;
  out.peak_step = peak.place.step + 1;
  out.peak_phase = era_name(peak.place.era);
  out.peak_op = dictionary.op(peak.place.op);
  out.peak_module = dictionary.module(peak.place.module).path;
  out.by_category = by_category(dictionary, peak.held, CategoryLevel::kTop);
  out.by_subcategory = by_category(dictionary, peak.held, CategoryLevel::kBoth);
  for (const Held& block : peak.held) {
    if (block.module == ModuleId{}) out.outside_modules += block.bytes;
  }
}

void fill_confidence(DeviceSummary& out, const DevicePeak& peak) {
  std::array<Bytes, kCertainties> parts{};
  for (const Held& block : peak.held) {
    parts[static_cast<std::size_t>(block.certainty)] += block.bytes;
  }
  out.confidence = parts;
}

bool is_estimate(const RunInfo& info) {
  const auto found = info.find("producer");
  return found != info.end() && found->second == "virtual";
}

void fill_reserved(DeviceSummary& out, const DeviceTotals& totals,
                   const std::vector<StepPeak>& steps, const std::vector<TimelineLevel>& levels) {
  out.allocated_at_end = totals.allocated;
  out.segments = totals.segments;
  out.retries = totals.retries;
  out.ooms = totals.ooms;
  if (totals.knows_reserved) {
    Bytes highest;
    if (!levels.empty()) {
      for (const TimelineBucket& bucket : levels.back().buckets) {
        highest = std::max(highest, bucket.reserved);
      }
    }
    out.peak_reserved = highest;
  }
  for (const StepPeak& step : steps) {
    const auto reserved = totals.knows_reserved ? std::optional(step.reserved) : std::nullopt;
    out.steps.push_back({step.allocated, reserved, step.event});
  }
}

void fill_limit(DeviceSummary& out, const RunInfo& info) {
  std::optional<std::int64_t> limit = number(info, "memory_limit." + out.name);
  if (!limit) limit = number(info, "allocator_limit." + out.name);
  if (limit) out.memory_limit = Bytes(*limit);
  if (out.ooms > 0) {
    out.fits = false;
  } else if (out.memory_limit) {
    out.fits = true;
  }
}

// A virtual GPU keeps values of its own on the host.
bool may_grow(std::string_view device, const RunInfo& info) {
  return !(is_estimate(info) && device.starts_with("cpu"));
}

// One sentence for a device, about what grows most.
void warn_of_growth(const DeviceSummary& device, std::vector<std::string>& warnings) {
  if (device.growth.empty()) return;
  const GrowthRow& most = device.growth.front();
  std::string where = most.module.empty() ? most.op : most.op + " in " + most.module;
  if (most.place) {
    where = short_path(most.place->file) + ":" + std::to_string(most.place->line);
    if (!most.place->text.empty()) where += " (" + most.place->text + ")";
  }
  if (where.empty()) where = "outside of ops";
  std::string sentence = "memory on " + device.name + std::string(kGrowsWithEveryStep) + where +
                         " keeps " + format_size(most.per_step) + " of each, " +
                         format_size(most.kept) + " by the last";
  if (!most.holder.empty()) sentence += ", held by " + most.holder;
  if (const std::size_t more = device.growth.size() - 1; more > 0) {
    sentence += ", and " + std::to_string(more) + " more " + (more == 1 ? "place" : "places");
  }
  warnings.push_back(sentence + "; peakline show --growth lists what is kept");
}

// Empty for a device that never held anything.
DevicePeak peak_of(const Passes& passes, std::size_t device) {
  return device < passes.peak.peaks().size() ? passes.peak.peaks()[device] : DevicePeak{};
}

DeviceSummary summarize_device(DeviceId id, const Dictionary& dictionary, const RunInfo& info,
                               const Passes& passes, const EndPass& end,
                               const SummaryOptions& options) {
  const DevicePeak peak = peak_of(passes, id.raw());
  const std::vector<TimelineLevel> levels = passes.timeline.levels(id);
  DeviceSummary out;
  out.name = dictionary.device(id).name;
  out.model = dictionary.device(id).model;
  fill_peak(out, dictionary, peak);
  if (is_estimate(info) && !is_host(out)) fill_confidence(out, peak);
  const std::vector<std::vector<StepPeak>>& steps = passes.steps.steps();
  fill_reserved(out, end.totals[id.raw()],
                id.raw() < steps.size() ? steps[id.raw()] : std::vector<StepPeak>{}, levels);
  fill_limit(out, info);
  out.modules = module_table(dictionary, peak.held, passes.modules, id);
  out.ops = op_rows(dictionary, peak.held, passes.ops.usage(id), end.op_calls);
  out.peak_stack = stack_places(dictionary, peak.place.call.stack);
  out.lines = line_table(dictionary, peak.held, passes.lines, id);
  out.regions = region_table(peak.held, passes.regions, id);
  if (may_grow(out.name, info)) {
    out.growth = growth_table(dictionary, passes.growth, id, info);
  }
  if (const Failure* failure = passes.failure.of(id)) {
    out.failure = failure_row(dictionary, *failure);
  }
  out.timeline = timeline_view(dictionary, levels, options.timeline_points);
  return out;
}

}  // namespace

Result<GrowthSoFar> growth_so_far(TraceReader& reader) {
  GrowthPass growth;
  Pass* const pass = &growth;
  const Result<Diagnostics> diagnostics = replay(reader, std::span(&pass, 1));
  if (!diagnostics.ok()) return diagnostics.status();
  GrowthSoFar out;
  for (std::size_t i = 0; i < reader.dictionary().device_count(); ++i) {
    const DeviceId id(static_cast<std::uint8_t>(i));
    const std::string& name = reader.dictionary().device(id).name;
    if (!may_grow(name, reader.info())) continue;
    out.devices.push_back({name, growth_table(reader.dictionary(), growth, id, reader.info())});
    out.suspects |= growth.suspects(id);
  }
  return out;
}

Result<Summary> summarize(TraceReader& reader, const SummaryOptions& options) {
  Passes passes;
  EndPass end;
  std::vector<Pass*> all;
  for (Pass* pass : passes.all()) all.push_back(pass);
  all.push_back(&end);
  all.insert(all.end(), options.also.begin(), options.also.end());
  Result<Diagnostics> diagnostics = replay(reader, all);
  if (!diagnostics.ok()) return diagnostics.status();

  Summary summary;
  summary.info = reader.info();
  if (const auto conf = summary.info.find("allocator_conf"); conf != summary.info.end()) {
    summary.allocator_conf = conf->second;
  }
  summary.events = end.events;
  summary.duration = end.time;
  summary.steps_completed = passes.steps.completed();
  summary.unknown_values = static_cast<std::uint64_t>(
      std::max<std::int64_t>(number(summary.info, "unknown_values").value_or(0), 0));
  for (std::size_t i = 0; i < end.totals.size(); ++i) {
    // A device whose first allocation was too big held nothing, and is what the run is about.
    if (peak_of(passes, i).bytes == Bytes{} && end.totals[i].ooms == 0) continue;
    summary.devices.push_back(summarize_device(DeviceId(static_cast<std::uint8_t>(i)),
                                               reader.dictionary(), summary.info, passes, end,
                                               options));
    if (is_host(summary.devices.back())) summary.host_peak = summary.devices.back().peak_allocated;
  }
  std::stable_sort(summary.devices.begin(), summary.devices.end(),
                   [](const DeviceSummary& a, const DeviceSummary& b) {
                     return std::pair(!is_host(a), a.peak_allocated) >
                            std::pair(!is_host(b), b.peak_allocated);
                   });
  diagnostics->count(Loss::kTooManySteps, passes.steps.unlisted());
  summary.warnings = diagnostics->sentences();
  for (const DeviceSummary& device : summary.devices) warn_of_growth(device, summary.warnings);
  if (const auto why = summary.info.find("partial"); why != summary.info.end()) {
    summary.warnings.insert(summary.warnings.begin(), why->second);
  }
  return summary;
}

}  // namespace peakline
