#include "report/line_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "ledger/era_name.h"
#include "report/module_table.h"

namespace peakline {
namespace {

CodePlace place_of(const Dictionary& dictionary, LineId id) {
  const CodeLine& line = dictionary.line(id);
  return {std::string(dictionary.name(line.file)), line.line,
          std::string(dictionary.name(line.function)), line.text};
}

struct AtPeak {
  Bytes bytes;
  std::vector<Held> held;
};

std::map<LinePlace, AtPeak> by_place(const Dictionary& dictionary, std::span<const Held> held) {
  std::map<LinePlace, AtPeak> places;
  for (const Held& block : held) {
    const LinePlace place = line_place(dictionary, block.call);
    if (place.line == LineId{}) continue;
    AtPeak& at = places[place];
    at.bytes += block.bytes;
    at.held.push_back(block);
  }
  return places;
}

LineRow row_of(const Dictionary& dictionary, const LinePlace& place, const LineUsage& usage) {
  LineRow row;
  row.place = place_of(dictionary, place.line);
  if (place.caller != LineId{}) row.called_from = place_of(dictionary, place.caller);
  row.allocations = usage.allocations;
  row.allocated = usage.allocated;
  row.largest = usage.largest;
  return row;
}

// Under which name the recording's facts have a holder.
std::string holder_key(const std::string& device, const GrowthRow& row) {
  const std::string place = row.place ? fmt::format("{}:{}", row.place->file, row.place->line)
                                      : row.op + " " + row.module;
  return fmt::format("held_by.{}.{}", device, place);
}

}  // namespace

std::string short_path(std::string_view path) {
  const std::size_t last = path.rfind('/');
  if (last == std::string_view::npos || last == 0) return std::string(path);
  const std::size_t before = path.rfind('/', last - 1);
  return std::string(before == std::string_view::npos ? path : path.substr(before + 1));
}

std::vector<LineRow> line_table(const Dictionary& dictionary, std::span<const Held> held,
                                const LineUsagePass& lines, DeviceId device) {
  const std::map<LinePlace, AtPeak> at_peak = by_place(dictionary, held);
  std::vector<LineRow> rows;
  for (const auto& [place, usage] : lines.usage(device)) {
    LineRow row = row_of(dictionary, place, usage);
    if (const auto found = at_peak.find(place); found != at_peak.end()) {
      row.at_peak = found->second.bytes;
      row.by_category = by_category(dictionary, found->second.held, CategoryLevel::kTop);
    }
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const LineRow& a, const LineRow& b) {
    return std::pair(a.at_peak, a.allocated) > std::pair(b.at_peak, b.allocated);
  });
  return rows;
}

std::vector<RegionRow> region_table(std::span<const Held> held, const RegionSpansPass& regions,
                                    DeviceId device) {
  const auto& names = regions.names();
  std::vector<RegionRow> rows(names.size());
  for (const Held& block : held) {
    if (block.region.raw() < rows.size()) rows[block.region.raw()].at_peak += block.bytes;
  }
  // A region comes before those inside it, so one walk from the back reaches every outermost one.
  for (std::size_t i = rows.size(); i-- > 1;) {
    rows[names[i].around.raw()].at_peak += rows[i].at_peak;
    rows[i].path = names[i].path;
    if (i >= regions.spans().size()) continue;
    const RegionSpan& span = regions.spans()[i];
    rows[i].entered = span.entered;
    if (device.raw() < span.highest.size()) rows[i].highest = span.highest[device.raw()];
  }
  if (!rows.empty()) rows.erase(rows.begin());
  return rows;
}

std::vector<GrowthRow> growth_table(const Dictionary& dictionary, const GrowthPass& growth,
                                    DeviceId device, const RunInfo& info) {
  std::vector<GrowthRow> rows;
  for (const Growth& found : growth.growing()) {
    if (found.origin.device != device) continue;
    GrowthRow row;
    if (found.origin.place.line != LineId{}) {
      row.place = place_of(dictionary, found.origin.place.line);
    }
    row.op = dictionary.op(found.origin.op);
    row.module = dictionary.module(found.origin.module).path;
    row.kept = found.kept;
    row.blocks = found.blocks;
    row.first_step = found.first_step - 1;  // the blocks are of the step before
    row.last_step = found.last_step - 1;
    row.per_step = Bytes(found.kept.raw() / (found.last_step - found.first_step + 1));
    row.key = holder_key(dictionary.device(device).name, row);
    if (const auto held = info.find(row.key); held != info.end()) row.holder = held->second;
    row.examples = found.examples;
    rows.push_back(std::move(row));
  }
  return rows;
}

FailureRow failure_row(const Dictionary& dictionary, const Failure& failure) {
  FailureRow row;
  row.requested = failure.requested;
  row.allocated = failure.allocated;
  row.reserved = failure.reserved;
  row.step = failure.place.step + 1;
  row.phase = era_name(failure.place.era);
  row.op = dictionary.op(failure.place.op);
  row.module = dictionary.module(failure.place.module).path;
  row.stack = stack_places(dictionary, failure.place.call.stack);
  row.forward = stack_places(dictionary, failure.place.call.forward);
  row.by_category = by_category(dictionary, failure.held, CategoryLevel::kTop);
  std::map<std::string, Bytes> modules;
  for (const Held& block : failure.held) {
    modules[dictionary.module(block.module).path] += block.bytes;
  }
  for (const auto& [path, bytes] : modules) row.by_module.push_back({path, bytes});
  std::ranges::stable_sort(row.by_module, std::ranges::greater{}, &NamedBytes::bytes);
  for (const auto& [place, at] : by_place(dictionary, failure.held)) {
    LineRow line = row_of(dictionary, place, {});
    line.at_peak = at.bytes;
    line.allocations = at.held.size();
    line.by_category = by_category(dictionary, at.held, CategoryLevel::kTop);
    row.lines.push_back(std::move(line));
  }
  std::ranges::stable_sort(row.lines, std::ranges::greater{}, &LineRow::at_peak);
  return row;
}

std::vector<CodePlace> stack_places(const Dictionary& dictionary, StackId stack) {
  std::vector<CodePlace> places;
  for (; stack != StackId{}; stack = dictionary.stack(stack).caller) {
    if (stack.raw() >= dictionary.stack_count()) break;
    places.push_back(place_of(dictionary, dictionary.stack(stack).line));
  }
  return places;
}

}  // namespace peakline
