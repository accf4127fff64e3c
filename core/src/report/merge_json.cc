#include <nlohmann/json.hpp>

#include <peakline/merge.h>

namespace peakline {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json rank_json(const std::optional<RankUse>& use) {
  if (!use) return nullptr;
  Json out;
  out["rank"] = use->rank < 0 ? Json(nullptr) : Json(use->rank);
  out["file"] = use->file;
  out["device"] = use->device;
  out["cut"] = use->cut;
  out["peak_allocated"] = use->peak_allocated.raw();
  out["peak_reserved"] = use->peak_reserved ? Json(use->peak_reserved->raw()) : Json(nullptr);
  out["ooms"] = use->ooms;
  out["peak"] = {{"step", use->peak_step},
                 {"phase", use->peak_phase},
                 {"op", use->peak_op},
                 {"module", use->peak_module}};
  out["by_category"] = Json::object();
  for (const NamedBytes& row : use->by_category) out["by_category"][row.name] = row.bytes.raw();
  return out;
}

Json differences(const std::vector<Difference>& rows, const char* other) {
  Json out = Json::array();
  for (const Difference& row : rows) {
    out.push_back({{"name", row.name}, {"worst", row.worst.raw()}, {other, row.other.raw()}});
  }
  return out;
}

}  // namespace

std::string merge_to_json(const RankMerge& merge) {
  Json out;
  out["schema_version"] = 1;
  out["world_size"] = merge.world_size();
  out["recordings"] = merge.count();
  out["missing"] = merge.missing();
  out["cut"] = merge.cut();
  out["ranks_out_of_memory"] = merge.out_of_memory();
  out["mean_allocated"] = merge.mean().raw();
  out["worst"] = rank_json(merge.worst());
  out["lowest"] = rank_json(merge.lowest());
  out["why"] = {{"by_category", differences(merge.by_category(), "mean")},
                {"by_module", differences(merge.by_module(), "lowest")}};
  out["warnings"] = merge.warnings();
  return dump(out);
}

}  // namespace peakline
