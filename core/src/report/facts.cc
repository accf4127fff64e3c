#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include <peakline/diff.h>

namespace peakline {
namespace {

using Json = nlohmann::ordered_json;

Bytes sum(const std::vector<NamedBytes>& rows) {
  Bytes total;
  for (const NamedBytes& row : rows) total += row.bytes;
  return total;
}

// The row that makes `rows` sum to `total`.
void add_rest(std::vector<NamedBytes>& rows, std::string_view name, Bytes total) {
  const Bytes rest = total - sum(rows);
  if (rest != Bytes{}) rows.push_back({std::string(name), rest});
}

std::string line_name(const CodePlace& place) {
  std::string name = fmt::format("{}:{} {}", short_path(place.file), place.line, place.function);
  return place.text.empty() ? name : name + ": " + place.text;
}

std::vector<NamedBytes> line_facts(const std::vector<LineRow>& lines) {
  std::map<std::string, Bytes> sums;
  for (const LineRow& row : lines) {
    if (row.at_peak != Bytes{}) sums[line_name(row.place)] += row.at_peak;
  }
  std::vector<NamedBytes> facts;
  facts.reserve(sums.size());
  for (const auto& [name, bytes] : sums) facts.push_back({name, bytes});
  return facts;
}

Json to_json(const std::vector<NamedBytes>& rows) {
  Json out = Json::object();
  for (const NamedBytes& row : rows) out[row.name] = row.bytes.raw();
  return out;
}

// Reads one part after the other and remembers the first thing that is wrong.
class Reader {
 public:
  Reader(const Json& root, std::string_view name) : root_(root), name_(name) {}

  Bytes bytes(const char* key) {
    const auto found = root_.find(key);
    if (found != root_.end() && found->is_number_integer())
      return Bytes(found->get<std::int64_t>());
    wrong(fmt::format("it has no number '{}'", key));
    return {};
  }
  std::optional<Bytes> optional_bytes(const char* key) {
    const auto found = root_.find(key);
    if (found == root_.end() || found->is_null()) return std::nullopt;
    return bytes(key);
  }
  std::string text(const char* key) {
    const auto found = root_.find(key);
    return found != root_.end() && found->is_string() ? found->get<std::string>() : "";
  }
  // {name: bytes}
  std::vector<NamedBytes> by_name(const char* key) {
    std::vector<NamedBytes> rows;
    for (const auto& [name, value] : root_.at(key).items()) add(rows, key, name, value);
    return rows;
  }
  // [{name_key: text, bytes_key: bytes}], as `peakline show --json` writes it
  std::vector<NamedBytes> rows(const char* key, const char* name_key, const char* bytes_key) {
    std::vector<NamedBytes> rows;
    for (const Json& row : root_.at(key)) {
      const bool good = row.is_object() && row.contains(name_key) && row.contains(bytes_key) &&
                        row[name_key].is_string();
      if (!good) {
        wrong(fmt::format("a row of '{}' lacks '{}' or '{}'", key, name_key, bytes_key));
        break;
      }
      add(rows, key, row[name_key].get<std::string>(), row[bytes_key]);
    }
    return rows;
  }
  std::vector<NamedBytes> either(const char* key, const char* name_key, const char* bytes_key) {
    const auto found = root_.find(key);
    if (found == root_.end()) return {};
    if (found->is_object()) return by_name(key);
    if (found->is_array()) return rows(key, name_key, bytes_key);
    wrong(fmt::format("'{}' is neither an object nor a list", key));
    return {};
  }
  // A baseline has them by name, the JSON of `peakline show` as rows of several fields.
  std::vector<NamedBytes> lines(const char* key) {
    const auto found = root_.find(key);
    if (found == root_.end()) return {};
    if (found->is_object()) return by_name(key);
    std::vector<LineRow> rows;
    for (const Json& row : *found) {
      const bool good = row.is_object() && is_text(row, "file") && is_text(row, "function") &&
                        is_text(row, "text") && is_number(row, "line") && is_number(row, "at_peak");
      if (!good) {
        wrong(fmt::format("a row of '{}' is no line of a program", key));
        return {};
      }
      LineRow& line = rows.emplace_back();
      line.place = {row["file"], row["line"], row["function"], row["text"]};
      line.at_peak = Bytes(row["at_peak"].get<std::int64_t>());
    }
    return line_facts(rows);
  }
  void wrong(const std::string& what) {
    if (status_.ok()) status_ = invalid_input(fmt::format("'{}' is no baseline: {}", name_, what));
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  static bool is_text(const Json& row, const char* key) {
    return row.contains(key) && row[key].is_string();
  }
  static bool is_number(const Json& row, const char* key) {
    return row.contains(key) && row[key].is_number_integer();
  }
  void add(std::vector<NamedBytes>& rows, const char* key, const std::string& name,
           const Json& value) {
    if (!value.is_number_integer()) {
      return wrong(fmt::format("'{}' in '{}' is no whole number", name, key));
    }
    const Bytes bytes(value.get<std::int64_t>());
    if (bytes != Bytes{}) rows.push_back({name, bytes});
  }

  const Json& root_;
  std::string_view name_;
  Status status_;
};

}  // namespace

RunFacts facts_of(const Summary& summary) {
  RunFacts facts;
  const DeviceSummary* device = summary.main_device();
  if (device == nullptr) return facts;
  facts.device = device->name;
  facts.gpu = device->model;
  facts.peak_allocated = device->peak_allocated;
  facts.peak_reserved = device->peak_reserved;
  facts.ooms = device->ooms;
  facts.categories = device->by_subcategory;
  for (const ModuleRow& row : device->modules) {
    if (row.own != Bytes{}) facts.modules.push_back({row.path, row.own});
  }
  for (const OpRow& row : device->ops) {
    if (row.at_peak != Bytes{}) facts.ops.push_back({row.name, row.at_peak});
  }
  facts.lines = line_facts(device->lines);
  if (!device->lines.empty()) add_rest(facts.lines, kNoLine, facts.peak_allocated);
  add_rest(facts.modules, kOutsideModules, facts.peak_allocated);
  add_rest(facts.ops, kOutsideOps, facts.peak_allocated);
  return facts;
}

std::string facts_to_json(const RunFacts& facts) {
  Json out;
  out["schema_version"] = 1;
  out["device"] = facts.device;
  out["gpu"] = facts.gpu;
  out["peak_allocated"] = facts.peak_allocated.raw();
  out["peak_reserved"] = facts.peak_reserved ? Json(facts.peak_reserved->raw()) : Json(nullptr);
  out["by_subcategory"] = to_json(facts.categories);
  out["modules"] = to_json(facts.modules);
  out["ops"] = to_json(facts.ops);
  if (!facts.lines.empty()) out["lines"] = to_json(facts.lines);
  return out.dump(1, ' ', false, Json::error_handler_t::replace);
}

Result<RunFacts> facts_from_json(std::string_view text, std::string_view name) {
  const Json root = Json::parse(text, nullptr, false);
  if (root.is_discarded() || !root.is_object()) {
    return invalid_input(fmt::format(
        "'{}' is no baseline: it is not a JSON object; --update writes a new one", name));
  }
  Reader reader(root, name);
  RunFacts facts;
  facts.device = reader.text("device");
  facts.gpu = reader.text("gpu");
  facts.peak_allocated = reader.bytes("peak_allocated");
  facts.peak_reserved = reader.optional_bytes("peak_reserved");
  facts.categories = reader.either("by_subcategory", "name", "bytes");
  facts.modules = reader.either("modules", "path", "own");
  facts.ops = reader.either("ops", "name", "at_peak");
  facts.lines = reader.lines("lines");
  if (!reader.status().ok()) return reader.status();
  add_rest(facts.categories, "Other", facts.peak_allocated);
  if (!facts.lines.empty()) add_rest(facts.lines, kNoLine, facts.peak_allocated);
  add_rest(facts.modules, kOutsideModules, facts.peak_allocated);
  add_rest(facts.ops, kOutsideOps, facts.peak_allocated);
  return facts;
}

}  // namespace peakline
