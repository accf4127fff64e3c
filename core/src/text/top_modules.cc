#include "text/top_modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string_view>

namespace peakline {
namespace {

std::string_view parent_of(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

// The number that a layer of a list is called by.
std::optional<std::uint64_t> number_of(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('.') + 1);  // npos + 1 is 0
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc{} || end != name.data() + name.size()) return std::nullopt;
  return number;
}

bool alike(const ModuleRow& a, const ModuleRow& b) {
  const auto same = [](const NamedBytes& x, const NamedBytes& y) {
    return x.name == y.name && x.bytes == y.bytes;
  };
  return a.peak == b.peak && std::ranges::equal(a.by_category, b.by_category, same);
}

std::vector<const ModuleRow*> without_wrappers(const std::vector<ModuleRow>& rows) {
  std::map<std::string_view, Bytes> held;
  for (const ModuleRow& row : rows) held[row.path] = row.peak;
  std::set<std::string_view> wrappers;
  for (const ModuleRow& row : rows) {
    const auto parent = held.find(parent_of(row.path));
    if (parent != held.end() && parent->second == row.peak) wrappers.insert(parent->first);
  }
  std::vector<const ModuleRow*> kept;
  for (const ModuleRow& row : rows) {
    if (row.peak > Bytes{} && !wrappers.contains(row.path)) kept.push_back(&row);
  }
  return kept;
}

// Layers first to last of a list, which hold the same as the first of them.
struct Layers {
  std::size_t shown = 0;  // where the first stands among the shown
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};

std::vector<ShownModule> with_equal_layers_as_one(const std::vector<const ModuleRow*>& rows) {
  std::vector<ShownModule> shown;
  std::map<std::string_view, Layers> lists;       // by parent
  std::string inside_of_a_repeated_layer = "\n";  // in no path
  for (const ModuleRow* row : rows) {
    if (row->path.starts_with(inside_of_a_repeated_layer)) continue;
    const std::string_view parent = parent_of(row->path);
    const std::optional<std::uint64_t> number = number_of(row->path);
    const auto list = lists.find(parent);
    if (number && list != lists.end() && *number == list->second.last + 1 &&
        alike(*row, *shown[list->second.shown].row)) {
      list->second.last = *number;
      const std::string before = parent.empty() ? "" : std::string(parent) + ".";
      shown[list->second.shown].path =
          fmt::format("{}{}-{}, each", before, list->second.first, *number);
      inside_of_a_repeated_layer = row->path + ".";
      continue;
    }
    if (number) lists[parent] = {shown.size(), *number, *number};
    shown.push_back({row->path, row});
  }
  return shown;
}

}  // namespace

std::vector<ShownModule> top_modules(const std::vector<ModuleRow>& rows, std::size_t most) {
  const std::vector<ShownModule> all = with_equal_layers_as_one(without_wrappers(rows));
  std::vector<std::size_t> order(all.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return all[i].row->peak; });
  order.resize(std::min(most, order.size()));
  std::ranges::sort(order);
  std::vector<ShownModule> largest;
  largest.reserve(order.size());
  for (const std::size_t i : order) largest.push_back(all[i]);
  return largest;
}

}  // namespace peakline
