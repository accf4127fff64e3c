#include "report/json_export.h"

namespace peakline {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;

Json optional_bytes(const std::optional<Bytes>& bytes) {
  return bytes ? Json(bytes->raw()) : Json(nullptr);
}

std::string text(const RunInfo& info, const std::string& key) {
  const auto found = info.find(key);
  return found == info.end() ? std::string() : found->second;
}

Json by_name(const std::vector<NamedBytes>& rows) {
  Json out = Json::object();
  for (const NamedBytes& row : rows) out[row.name] = row.bytes.raw();
  return out;
}

template <class Rows, class ToJson>
Json list(const Rows& rows, ToJson to_json) {
  Json out = Json::array();
  for (const auto& row : rows) out.push_back(to_json(row));
  return out;
}

Json module_json(const ModuleRow& row) {
  return {{"path", row.path},
          {"type", row.type},
          {"peak", row.peak.raw()},
          {"own", row.own.raw()},
          {"by_category", by_name(row.by_category)},
          {"highest_while_running", row.highest_while_running.raw()},
          {"forward_calls", row.forward_calls}};
}

Json op_json(const OpRow& row) {
  return {{"name", row.name},
          {"calls", row.calls},
          {"allocations", row.allocations},
          {"at_peak", row.at_peak.raw()},
          {"allocated", row.allocated.raw()},
          {"largest", row.largest.raw()}};
}

Json place_json(const CodePlace& place) {
  return {{"file", place.file},
          {"line", place.line},
          {"function", place.function},
          {"text", place.text}};
}

Json line_json(const LineRow& row) {
  Json out = place_json(row.place);
  out["called_from"] = row.called_from ? place_json(*row.called_from) : Json(nullptr);
  out["allocations"] = row.allocations;
  out["at_peak"] = row.at_peak.raw();
  out["allocated"] = row.allocated.raw();
  out["largest"] = row.largest.raw();
  out["by_category"] = by_name(row.by_category);
  return out;
}

Json region_json(const RegionRow& row) {
  return {{"path", row.path},
          {"entered", row.entered},
          {"at_peak", row.at_peak.raw()},
          {"highest", row.highest.raw()}};
}

Json growth_json(const GrowthRow& row) {
  return {{"place", row.place ? place_json(*row.place) : Json(nullptr)},
          {"op", row.op},
          {"module", row.module},
          {"kept", row.kept.raw()},
          {"blocks", row.blocks},
          {"per_step", row.per_step.raw()},
          {"first_step", row.first_step},
          {"last_step", row.last_step},
          {"holder", row.holder.empty() ? Json(nullptr) : Json(row.holder)}};
}

Json failure_json(const FailureRow& row) {
  return {{"requested", row.requested.raw()},
          {"allocated", row.allocated.raw()},
          {"reserved", row.reserved.raw()},
          {"step", row.step},
          {"phase", row.phase},
          {"op", row.op},
          {"module", row.module},
          {"stack", list(row.stack, place_json)},
          {"forward", list(row.forward, place_json)},
          {"by_category", by_name(row.by_category)},
          {"by_module", by_name(row.by_module)},
          {"lines", list(row.lines, line_json)}};
}

Json timeline_json(const TimelineView& view) {
  Json points = Json::array();
  for (const TimelinePoint& point : view.points) {
    Json held = Json::array();
    for (const Bytes bytes : point.by_category) held.push_back(bytes.raw());
    points.push_back({{"first_event", point.first_event},
                      {"time_ns", point.time.raw()},
                      {"lowest", point.lowest.raw()},
                      {"highest", point.highest.raw()},
                      {"reserved", point.reserved.raw()},
                      {"by_category", std::move(held)}});
  }
  return {{"events_per_point", view.events_per_point},
          {"categories", view.categories},
          {"points", std::move(points)}};
}

Json step_json(const StepRow& step) {
  return {{"peak_allocated", step.peak_allocated.raw()},
          {"peak_reserved", optional_bytes(step.peak_reserved)}};
}

Json saving_json(const Saving& saving) {
  return {{"what", saving.what},
          {"why", saving.why},
          {"command", saving.command},
          {"peak_reserved_before", saving.before.raw()},
          {"peak_reserved_after", saving.after.raw()}};
}

Json confidence_json(const std::array<Bytes, kCertainties>& parts) {
  Json out;
  for (std::size_t i = 0; i < kCertainties; ++i) out[kCertaintyNames[i]] = parts[i].raw();
  return out;
}

void put_device(Json& out, const DeviceSummary& device) {
  out["device"] = device.name;
  out["gpu"] = device.model;
  out["peak_allocated"] = device.peak_allocated.raw();
  out["peak_reserved"] = optional_bytes(device.peak_reserved);
  out["memory_limit"] = optional_bytes(device.memory_limit);
  out["allocated_at_end"] = device.allocated_at_end.raw();
  out["fits"] = device.fits ? Json(*device.fits) : Json(nullptr);
  out["segments"] = device.segments;
  out["retries"] = device.retries;
  out["ooms"] = device.ooms;
  out["peak"] = {{"event", device.peak_event},
                 {"time_ns", device.peak_time.raw()},
                 {"step", device.peak_step},
                 {"phase", device.peak_phase},
                 {"op", device.peak_op},
                 {"module", device.peak_module},
                 {"outside_modules", device.outside_modules.raw()}};
  if (!device.peak_stack.empty()) out["peak"]["stack"] = list(device.peak_stack, place_json);
  out["by_category"] = by_name(device.by_category);
  out["by_subcategory"] = by_name(device.by_subcategory);
  if (device.confidence) out["confidence"] = confidence_json(*device.confidence);
  out["modules"] = list(device.modules, module_json);
  out["ops"] = list(device.ops, op_json);
  if (!device.lines.empty()) out["lines"] = list(device.lines, line_json);
  if (!device.regions.empty()) out["regions"] = list(device.regions, region_json);
  if (device.failure) out["failure"] = failure_json(*device.failure);
  if (!device.growth.empty()) out["growth"] = list(device.growth, growth_json);
  out["steps"] = list(device.steps, step_json);
  out["timeline"] = timeline_json(device.timeline);
}

}  // namespace

nlohmann::ordered_json summary_json(const Summary& summary) {
  Json out;
  out["schema_version"] = kSchemaVersion;
  const DeviceSummary nothing;
  const DeviceSummary* main = summary.main_device();
  put_device(out, main == nullptr ? nothing : *main);
  out["torch"] = text(summary.info, "torch");
  out["allocator_conf"] = summary.allocator_conf ? Json(*summary.allocator_conf) : Json(nullptr);
  if (summary.info.contains("cudnn")) out["cudnn"] = text(summary.info, "cudnn");
  out["host_peak"] = summary.host_peak.raw();
  out["unknown_values"] = summary.unknown_values;
  out["events"] = summary.events;
  out["steps_completed"] = summary.steps_completed;
  out["duration_ns"] = summary.duration.raw();
  out["partial"] = summary.info.contains("partial");
  out["info"] = summary.info;
  out["warnings"] = summary.warnings;
  out["advice"] = list(summary.advice, saving_json);
  out["devices"] = Json::array();
  for (std::size_t i = 1; i < summary.devices.size(); ++i) {
    Json device;
    put_device(device, summary.devices[i]);
    out["devices"].push_back(std::move(device));
  }
  return out;
}

std::string summary_to_json(const Summary& summary) {
  // Names come from the user's program: bytes that are not UTF-8 must not stop the export.
  return summary_json(summary).dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace peakline
