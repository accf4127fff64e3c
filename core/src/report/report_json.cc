#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include <peakline/report.h>

#include "report/column.h"
#include "report/json_export.h"

namespace peakline {
namespace {

using Json = nlohmann::ordered_json;

// Bytes that are not UTF-8 must not stop the export.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <class Rows, class Value>
std::string column(const Rows& rows, Value value) {
  PackedColumn out;
  for (const auto& row : rows) out.add(static_cast<std::int64_t>(value(row)));
  return out.base64();
}

template <class Rows, class Value>
std::string differences(const Rows& rows, Value value) {
  PackedColumn out;
  for (const auto& row : rows) out.add_difference(static_cast<std::int64_t>(value(row)));
  return out.base64();
}

// Paths repeat their parent's: what follows it begins with a dot.
Json module_words(const Dictionary& dictionary) {
  Json out = Json::array();
  for (std::uint32_t i = 0; i < dictionary.module_count(); ++i) {
    const ModuleInfo& module = dictionary.module(ModuleId(i));
    std::string_view path = module.path;
    const std::string& parent = dictionary.module(module.parent).path;
    if (module.parent != ModuleId{} && path.size() > parent.size() + 1 &&
        path.starts_with(parent) && path[parent.size()] == '.') {
      path.remove_prefix(parent.size());
    }
    out.push_back({path, module.type, module.parent.raw()});
  }
  return out;
}

// Lines that stacks of the report name, and the stacks themselves: a line and its caller each.
Json code_words(const Dictionary& dictionary) {
  Json lines = Json::array();
  for (std::uint32_t i = 0; i < dictionary.line_count(); ++i) {
    const CodeLine& line = dictionary.line(LineId(i));
    lines.push_back({line.file.raw(), line.line, line.function.raw(), line.text, line.library});
  }
  PackedColumn callers;
  PackedColumn innermost;
  for (std::uint32_t i = 0; i < dictionary.stack_count(); ++i) {
    callers.add(dictionary.stack(StackId(i)).caller.raw());
    innermost.add(dictionary.stack(StackId(i)).line.raw());
  }
  Json names = Json::object();  // only those that lines use
  for (std::uint32_t i = 1; i < dictionary.line_count(); ++i) {
    const CodeLine& line = dictionary.line(LineId(i));
    for (const NameId name : {line.file, line.function}) {
      names[std::to_string(name.raw())] = dictionary.name(name);
    }
  }
  return {{"names", std::move(names)},
          {"lines", std::move(lines)},
          {"caller", callers.base64()},
          {"line", innermost.base64()}};
}

Json words(const Dictionary& dictionary) {
  Json ops = Json::array();
  for (std::uint32_t i = 0; i < dictionary.op_count(); ++i) ops.push_back(dictionary.op(OpId(i)));
  Json categories = Json::array();
  for (std::size_t i = 0; i < dictionary.category_count(); ++i) {
    const CategoryId id(static_cast<std::uint8_t>(i));
    categories.push_back(
        {dictionary.category_label(id), dictionary.category(dictionary.top_level(id)).name});
  }
  return {{"modules", module_words(dictionary)},
          {"ops", std::move(ops)},
          {"categories", std::move(categories)},
          {"code", code_words(dictionary)}};
}

Json points_json(const DeviceReport& device) {
  using Point = const ReportPoint&;
  Json held = Json::array();
  for (std::size_t c = 0; c < device.categories.size(); ++c) {
    held.push_back(differences(device.points, [c](Point p) { return p.by_category[c].raw(); }));
  }
  return {{"event", differences(device.points, [](Point p) { return p.event; })},
          {"time", differences(device.points, [](Point p) { return p.time.raw(); })},
          {"allocated", differences(device.points, [](Point p) { return p.allocated.raw(); })},
          {"lowest", differences(device.points, [](Point p) { return p.lowest.raw(); })},
          {"highest", differences(device.points, [](Point p) { return p.highest.raw(); })},
          {"reserved", differences(device.points, [](Point p) { return p.reserved.raw(); })},
          {"by_category", std::move(held)}};
}

Json alive_json(const DeviceReport& device) {
  using Key = const AliveKey&;
  PackedColumn counts;
  PackedColumn keys;
  PackedColumn bytes;
  PackedColumn points;
  auto change = device.changes.begin();
  for (std::uint32_t i = 0; i < device.points.size(); ++i) {
    if (!device.points[i].has_alive) continue;
    points.add_difference(i);
    std::int64_t count = 0;
    std::int64_t last_key = -1;
    for (; change != device.changes.end() && change->point == i; ++change, ++count) {
      keys.add(std::int64_t{change->key} - last_key);
      bytes.add(change->bytes.raw());
      last_key = change->key;
    }
    counts.add(count);
  }
  return {{"every", device.alive_every},
          {"key_module", column(device.keys, [](Key k) { return k.module.raw(); })},
          {"key_op", column(device.keys, [](Key k) { return k.op.raw(); })},
          {"key_category", column(device.keys, [](Key k) { return k.category.raw(); })},
          {"key_stack", column(device.keys, [](Key k) { return k.stack.raw(); })},
          {"points", points.base64()},
          {"counts", counts.base64()},
          {"keys", keys.base64()},
          {"bytes", bytes.base64()}};
}

Json map_json(const SegmentMap& map) {
  using Segment = const MapSegment&;
  PackedColumn gaps;
  PackedColumn bytes;
  PackedColumn categories;
  for (const MapSegment& segment : map.segments) {
    Bytes at;
    for (const MapBlock& block : segment.blocks) {
      gaps.add((block.offset - at).raw());
      bytes.add(block.bytes.raw());
      categories.add(block.category.raw());
      at = block.offset + block.bytes;
    }
  }
  return {{"title", map.title},
          {"event", map.event},
          {"time_ns", map.time.raw()},
          {"simulated", map.simulated},
          {"reserved", map.reserved.raw()},
          {"allocated", map.allocated.raw()},
          {"largest_free", map.largest_free.raw()},
          {"left_out", map.segments_left_out},
          {"address", differences(map.segments, [](Segment s) { return s.address.raw(); })},
          {"bytes", column(map.segments, [](Segment s) { return s.bytes.raw(); })},
          {"stream", column(map.segments, [](Segment s) { return s.stream.raw(); })},
          {"blocks", column(map.segments, [](Segment s) { return s.blocks.size(); })},
          {"block_gap", gaps.base64()},
          {"block_bytes", bytes.base64()},
          {"block_category", categories.base64()}};
}

Json steps_json(const DeviceSummary& device, std::size_t most) {
  std::vector<StepRow> rows(
      device.steps.begin(),
      device.steps.begin() + static_cast<std::ptrdiff_t>(std::min(most, device.steps.size())));
  const bool reserved = device.peak_reserved.has_value();
  return {{"count", device.steps.size()},
          {"allocated", column(rows, [](const StepRow& r) { return r.peak_allocated.raw(); })},
          {"reserved", reserved ? Json(column(rows,
                                              [](const StepRow& r) {
                                                return r.peak_reserved.value_or(Bytes{}).raw();
                                              }))
                                : Json(nullptr)},
          {"event", differences(rows, [](const StepRow& r) { return r.peak_event; })}};
}

Json device_json(const DeviceReport& device, const DeviceSummary& summary,
                 const ReportOptions& options) {
  Json maps = Json::array();
  for (const SegmentMap& map : device.maps) maps.push_back(map_json(map));
  return {{"name", device.name},
          {"total", device.total.raw()},
          {"categories", device.categories},
          {"points", points_json(device)},
          {"alive", alive_json(device)},
          {"steps", steps_json(summary, options.steps)},
          {"maps", std::move(maps)}};
}

Json spans_json(const Report& report) {
  using Span = const ReportSpan&;
  return {{"kind", column(report.spans, [](Span s) { return static_cast<int>(s.kind); })},
          {"depth", column(report.spans, [](Span s) { return s.depth; })},
          {"subject", column(report.spans, [](Span s) { return s.subject; })},
          {"first", differences(report.spans, [](Span s) { return s.first; })},
          {"length", column(report.spans, [](Span s) { return s.last - s.first; })},
          {"left_out", report.spans_left_out}};
}

// The summary as `peakline show --json` writes it, without what the report has in a better form.
Json short_summary(const Report& report) {
  Summary summary = report.summary;
  const ReportOptions& options = report.options;
  for (DeviceSummary& device : summary.devices) {
    device.timeline = {};
    device.steps.clear();
    if (device.modules.size() > options.modules) device.modules.resize(options.modules);
    if (device.ops.size() > options.ops) device.ops.resize(options.ops);
    if (device.lines.size() > options.lines) device.lines.resize(options.lines);
    if (device.failure && device.failure->lines.size() > options.lines) {
      device.failure->lines.resize(options.lines);
    }
  }
  return summary_json(summary);
}

Json left_out_json(const Report& report) {
  std::size_t modules = 0;
  std::size_t ops = 0;
  for (const DeviceSummary& device : report.summary.devices) {
    modules += device.modules.size() - std::min(device.modules.size(), report.options.modules);
    ops += device.ops.size() - std::min(device.ops.size(), report.options.ops);
  }
  return {{"modules", modules}, {"ops", ops}};
}

}  // namespace

std::string report_to_json(const Report& report, std::string_view title) {
  Json out;
  out["kind"] = "report";
  out["title"] = title;
  out["summary"] = short_summary(report);
  out["left_out"] = left_out_json(report);
  out["words"] = words(report.dictionary);
  out["devices"] = Json::array();
  for (std::size_t i = 0; i < report.devices.size(); ++i) {
    out["devices"].push_back(
        device_json(report.devices[i], report.summary.devices[i], report.options));
  }
  out["spans"] = spans_json(report);
  out["marks"] = Json::array();
  for (const ReportMark& mark : report.marks) out["marks"].push_back({mark.event, mark.name});
  return dump(out);
}

std::string diff_page_json(const RunDiff& diff, std::string_view before, std::string_view after) {
  Json out;
  out["kind"] = "diff";
  out["title"] = {before, after};
  out["diff"] = Json::parse(diff_to_json(diff));
  return dump(out);
}

}  // namespace peakline
