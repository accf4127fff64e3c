#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include <peakline/diff.h>

namespace peakline {
namespace {

using Json = nlohmann::ordered_json;

// Names that wrappers put into a module's path.
constexpr std::array<std::string_view, 3> kWrappers{"_checkpoint_wrapped_module",
                                                    "_fsdp_wrapped_module", "_orig_mod"};

// `path` with each part as `rename` gives it; a part that becomes empty is left out.
std::string rename_parts(std::string_view path,
                         const std::function<std::string_view(std::string_view)>& rename) {
  std::string out;
  while (!path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    const std::string_view part = rename(path.substr(0, dot));
    if (!part.empty()) {
      if (!out.empty()) out += '.';
      out += part;
    }
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return out;
}

std::string unwrapped(std::string_view path) {
  return rename_parts(path, [](std::string_view part) {
    return std::ranges::find(kWrappers, part) == kWrappers.end() ? part : std::string_view();
  });
}

bool is_number(std::string_view part) {
  return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string group_of(std::string_view path) {
  return rename_parts(path, [](std::string_view part) { return is_number(part) ? "*" : part; });
}

std::int64_t size_of_change(const Change& change) { return std::llabs(change.grown().raw()); }

std::vector<Change> changed(const std::map<std::string, Change>& rows) {
  std::vector<Change> out;
  for (const auto& [name, change] : rows) {
    if (change.grown() != Bytes{}) out.push_back(change);
  }
  std::stable_sort(out.begin(), out.end(), [](const Change& a, const Change& b) {
    return std::pair(size_of_change(a), a.grown()) > std::pair(size_of_change(b), b.grown());
  });
  return out;
}

using Rename = std::string (*)(std::string_view);
std::string as_it_is(std::string_view name) { return std::string(name); }

std::map<std::string, Change> match(const std::vector<NamedBytes>& before,
                                    const std::vector<NamedBytes>& after, Rename rename) {
  std::map<std::string, Change> rows;
  const auto row = [&](const std::string& name) -> Change& {
    const std::string known_as = rename(name);
    Change& change = rows[known_as];
    change.name = known_as;
    return change;
  };
  for (const NamedBytes& entry : before) row(entry.name).before += entry.bytes;
  for (const NamedBytes& entry : after) row(entry.name).after += entry.bytes;
  return rows;
}

std::map<std::string, Change> grouped(const std::map<std::string, Change>& modules) {
  std::map<std::string, Change> groups;
  for (const auto& [path, change] : modules) {
    const std::string name = group_of(path);
    const auto [group, fresh] = groups.try_emplace(name, Change{name, {}, {}, 0});
    group->second.before += change.before;
    group->second.after += change.after;
    ++group->second.members;
  }
  return groups;
}

// Of "model.py:12 forward: text".
std::size_t text_of_line(std::string_view name) { return name.find(": ", name.find(' ')); }
bool has_text(std::string_view name) { return text_of_line(name) != std::string_view::npos; }

// The number changes with the code above it.
std::string without_number(std::string_view name) {
  const std::size_t space = name.find(' ');
  const std::size_t colon = name.rfind(':', space);
  if (space == std::string_view::npos || colon == std::string_view::npos || !has_text(name)) {
    return std::string(name);
  }
  return std::string(name.substr(0, colon)) + std::string(name.substr(space));
}

std::string without_text(std::string_view name) {
  return std::string(name.substr(0, text_of_line(name)));
}

// By what they are, and called what they are called now. A recording may have been made without the
// text of its lines.
std::map<std::string, Change> match_lines(const std::vector<NamedBytes>& before,
                                          const std::vector<NamedBytes>& after) {
  const auto no_text = [](const std::vector<NamedBytes>& run) {
    return std::ranges::none_of(run, [](const NamedBytes& line) { return has_text(line.name); });
  };
  const Rename rename = no_text(before) || no_text(after) ? without_text : without_number;
  std::map<std::string, Change> rows = match(before, after, rename);
  for (const std::vector<NamedBytes>* run : {&before, &after}) {
    for (const NamedBytes& entry : *run) rows[rename(entry.name)].name = entry.name;
  }
  return rows;
}

Json change_json(const Change& change) {
  return {{"name", change.name},
          {"before", change.before.raw()},
          {"after", change.after.raw()},
          {"change", change.grown().raw()}};
}

Json group_json(const Change& change) {
  Json out = change_json(change);
  out["modules"] = change.members;
  return out;
}

Json total_json(const Change& change) {
  Json out = change_json(change);
  out.erase("name");
  return out;
}

template <class ToJson>
Json list(const std::vector<Change>& rows, ToJson to_json) {
  Json out = Json::array();
  for (const Change& row : rows) out.push_back(to_json(row));
  return out;
}

Json device_json(const RunFacts& facts) { return {{"device", facts.device}, {"gpu", facts.gpu}}; }

}  // namespace

RunDiff diff_runs(RunFacts before, RunFacts after) {
  RunDiff diff;
  diff.allocated = {"Peak allocated", before.peak_allocated, after.peak_allocated};
  if (before.peak_reserved && after.peak_reserved) {
    diff.reserved = Change{"Peak reserved", *before.peak_reserved, *after.peak_reserved};
  }
  diff.categories = changed(match(before.categories, after.categories, as_it_is));
  const std::map<std::string, Change> modules = match(before.modules, after.modules, unwrapped);
  diff.modules = changed(modules);
  diff.module_groups = changed(grouped(modules));
  diff.ops = changed(match(before.ops, after.ops, as_it_is));
  if (!before.lines.empty() && !after.lines.empty()) {
    diff.lines = changed(match_lines(before.lines, after.lines));
  }
  diff.before = std::move(before);
  diff.after = std::move(after);
  return diff;
}

std::string diff_to_json(const RunDiff& diff) {
  Json out;
  out["schema_version"] = 1;
  out["before"] = device_json(diff.before);
  out["after"] = device_json(diff.after);
  out["peak_allocated"] = total_json(diff.allocated);
  out["peak_reserved"] = diff.reserved ? total_json(*diff.reserved) : Json(nullptr);
  out["categories"] = list(diff.categories, change_json);
  out["modules"] = list(diff.modules, change_json);
  out["module_groups"] = list(diff.module_groups, group_json);
  out["ops"] = list(diff.ops, change_json);
  if (!diff.lines.empty()) out["lines"] = list(diff.lines, change_json);
  return out.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace peakline
