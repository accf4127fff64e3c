#include "report/summary_reader.h"

namespace peakline {
namespace {

using Json = nlohmann::ordered_json;

const Json* find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::vector<ModuleRow> module_rows(const Json& list) {
  std::vector<ModuleRow> rows;
  std::vector<std::string> above;  // paths of the modules around this one
  for (const Json& entry : list) {
    ModuleRow row;
    row.path = json_part::text(entry, "path");
    row.type = json_part::text(entry, "type");
    while (!above.empty() && !row.path.starts_with(above.back() + ".")) above.pop_back();
    row.depth = above.size();
    above.push_back(row.path);
    row.peak = json_part::bytes(entry, "peak").value_or(Bytes{});
    row.own = json_part::bytes(entry, "own").value_or(Bytes{});
    row.by_category = json_part::by_name(entry, "by_category");
    row.highest_while_running = json_part::bytes(entry, "highest_while_running").value_or(Bytes{});
    row.forward_calls = json_part::count(entry, "forward_calls");
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<StepRow> step_rows(const Json& list) {
  std::vector<StepRow> rows;
  for (const Json& entry : list) {
    StepRow row;
    row.peak_allocated = json_part::bytes(entry, "peak_allocated").value_or(Bytes{});
    row.peak_reserved = json_part::bytes(entry, "peak_reserved");
    rows.push_back(row);
  }
  return rows;
}

void read_peak(DeviceSummary& device, const Json& peak) {
  device.peak_event = json_part::count(peak, "event");
  device.peak_time = TimeNs(static_cast<std::int64_t>(json_part::count(peak, "time_ns")));
  device.peak_step = static_cast<std::uint32_t>(json_part::count(peak, "step"));
  device.peak_phase = json_part::text(peak, "phase");
  device.peak_op = json_part::text(peak, "op");
  device.peak_module = json_part::text(peak, "module");
  device.outside_modules = json_part::bytes(peak, "outside_modules").value_or(Bytes{});
}

std::optional<std::array<Bytes, kCertainties>> confidence_from(const Json& parts) {
  if (!parts.is_object()) return std::nullopt;
  std::array<Bytes, kCertainties> found{};
  for (std::size_t i = 0; i < kCertainties; ++i) {
    found[i] = json_part::bytes(parts, kCertaintyNames[i].data()).value_or(Bytes{});
  }
  return found;
}

DeviceSummary device_from(const Json& json) {
  DeviceSummary device;
  device.name = json_part::text(json, "device");
  device.model = json_part::text(json, "gpu");
  device.peak_allocated = json_part::bytes(json, "peak_allocated").value_or(Bytes{});
  device.peak_reserved = json_part::bytes(json, "peak_reserved");
  device.memory_limit = json_part::bytes(json, "memory_limit");
  device.allocated_at_end = json_part::bytes(json, "allocated_at_end").value_or(Bytes{});
  if (const Json* fits = find(json, "fits"); fits != nullptr && fits->is_boolean()) {
    device.fits = fits->get<bool>();
  }
  device.segments = json_part::count(json, "segments");
  device.retries = json_part::count(json, "retries");
  device.ooms = json_part::count(json, "ooms");
  read_peak(device, json_part::of(json, "peak"));
  device.by_category = json_part::by_name(json, "by_category");
  device.by_subcategory = json_part::by_name(json, "by_subcategory");
  device.confidence = confidence_from(json_part::of(json, "confidence"));
  device.modules = module_rows(json_part::of(json, "modules"));
  device.steps = step_rows(json_part::of(json, "steps"));
  return device;
}

}  // namespace

namespace json_part {

std::string text(const Json& object, const char* key) {
  const Json* found = find(object, key);
  return found != nullptr && found->is_string() ? found->get<std::string>() : std::string();
}

std::uint64_t count(const Json& object, const char* key) {
  const Json* found = find(object, key);
  return found != nullptr && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

bool is_true(const Json& object, const char* key) {
  const Json* found = find(object, key);
  return found != nullptr && found->is_boolean() && found->get<bool>();
}

std::optional<Bytes> bytes(const Json& object, const char* key) {
  const Json* found = find(object, key);
  if (found == nullptr || !found->is_number_integer()) return std::nullopt;
  return Bytes(found->get<std::int64_t>());
}

std::vector<NamedBytes> by_name(const Json& object, const char* key) {
  std::vector<NamedBytes> rows;
  for (const auto& [name, value] : of(object, key).items()) {
    if (value.is_number_integer()) rows.push_back({name, Bytes(value.get<std::int64_t>())});
  }
  return rows;
}

std::vector<std::string> texts(const Json& object, const char* key) {
  std::vector<std::string> out;
  for (const Json& entry : of(object, key)) {
    if (entry.is_string()) out.push_back(entry.get<std::string>());
  }
  return out;
}

const Json& of(const Json& object, const char* key) {
  static const Json kEmpty = Json::array();
  const Json* found = find(object, key);
  return found != nullptr && found->is_structured() ? *found : kEmpty;
}

}  // namespace json_part

Summary summary_from_json(const Json& json) {
  Summary summary;
  for (const auto& [key, value] : json_part::of(json, "info").items()) {
    if (value.is_string()) summary.info[key] = value.get<std::string>();
  }
  if (const Json* conf = find(json, "allocator_conf"); conf != nullptr && conf->is_string()) {
    summary.allocator_conf = conf->get<std::string>();
  }
  if (!json_part::text(json, "device").empty()) summary.devices.push_back(device_from(json));
  for (const Json& device : json_part::of(json, "devices")) {
    summary.devices.push_back(device_from(device));
  }
  summary.events = json_part::count(json, "events");
  summary.steps_completed = json_part::count(json, "steps_completed");
  summary.duration = TimeNs(static_cast<std::int64_t>(json_part::count(json, "duration_ns")));
  summary.unknown_values = json_part::count(json, "unknown_values");
  summary.host_peak = json_part::bytes(json, "host_peak").value_or(Bytes{});
  summary.warnings = json_part::texts(json, "warnings");
  for (const Json& row : json_part::of(json, "advice")) {
    summary.advice.push_back({json_part::text(row, "what"), json_part::text(row, "why"),
                              json_part::text(row, "command"),
                              json_part::bytes(row, "peak_reserved_before").value_or(Bytes{}),
                              json_part::bytes(row, "peak_reserved_after").value_or(Bytes{})});
  }
  return summary;
}

}  // namespace peakline
