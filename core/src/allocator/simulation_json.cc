#include <nlohmann/json.hpp>

#include <peakline/simulate.h>

namespace peakline {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;

Json use_json(const MemoryUse& use) {
  return {{"reserved", use.reserved.raw()},
          {"requested", use.requested.raw()},
          {"rounding", use.rounding.raw()},
          {"waiting", use.waiting.raw()},
          {"cached", use.cached.raw()}};
}

Json by_name(const std::vector<NamedBytes>& rows) {
  Json out = Json::object();
  for (const NamedBytes& row : rows) out[row.name] = row.bytes.raw();
  return out;
}

Json oom_json(const OomReport& oom) {
  return {{"message", oom.message},
          {"requested", oom.info.requested.raw()},
          {"segment", oom.info.segment.raw()},
          {"event", oom.event},
          {"step", oom.step},
          {"op", oom.op},
          {"module", oom.module},
          {"at_failure", use_json(oom.use)},
          {"largest_free_block", oom.largest_free_block.raw()},
          {"only_fragmented", oom.only_fragmented},
          {"by_category", by_name(oom.by_category)},
          {"by_module", by_name(oom.by_module)}};
}

Json outcome_json(const SettingOutcome& outcome) {
  return {{"conf", outcome.conf},
          {"fits", outcome.fits},
          {"peak_reserved", outcome.peak_reserved.raw()},
          {"peak_allocated", outcome.peak_allocated.raw()},
          {"at_peak", use_json(outcome.at_peak)},
          {"segments", outcome.segments},
          {"device_frees", outcome.device_frees},
          {"retries", outcome.retries},
          {"ooms", outcome.ooms}};
}

Json recorded_json(const RecordedSegments& recorded) {
  return {{"peak_reserved", recorded.peak_reserved.raw()},
          {"changes", recorded.changes},
          {"same", recorded.same},
          {"equal", recorded.equal}};
}

std::string_view source_name(SettingsSource source) {
  switch (source) {
    case SettingsSource::kGiven:
      return "given";
    case SettingsSource::kRecording:
      return "recording";
    default:
      return "default";
  }
}

}  // namespace

std::string simulation_to_json(const SimulationResult& result) {
  Json out;
  out["schema_version"] = kSchemaVersion;
  out["device"] = result.device;
  out["gpu"] = result.gpu;
  out["torch"] = result.torch;
  out["memory_limit"] = result.memory ? Json(result.memory->raw()) : Json(nullptr);
  out["settings_from"] = source_name(result.settings_from);
  out.update(outcome_json(result.outcome));
  out["oom"] = result.oom ? oom_json(*result.oom) : Json(nullptr);
  out["recorded"] = result.recorded ? recorded_json(*result.recorded) : Json(nullptr);
  out["settings"] = Json::array();
  for (const SettingOutcome& other : result.others) out["settings"].push_back(outcome_json(other));
  out["memory_stats"] = Json::object();
  for (const auto& [name, value] : result.stats.named()) out["memory_stats"][name] = value;
  out["warnings"] = result.warnings;
  for (const std::string& sentence : result.diagnostics.sentences()) {
    out["warnings"].push_back(sentence);
  }
  // A name in a recording may hold any bytes; what is not UTF-8 is replaced, not thrown at.
  return out.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace peakline
