#include "text/line_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

namespace peakline {
namespace {

struct Row {
  std::string name;
  std::string remark;  // below it
  std::string caller;  // below that
  Bytes at_peak;
  Bytes allocated;
  Bytes largest;
  std::uint64_t allocations = 0;
};

// "model.py:12", short enough to stand beside numbers.
std::string where_text(const CodePlace& place) {
  std::string out = short_path(place.file);
  if (place.line > 0) out += ":" + std::to_string(place.line);
  return out;
}

// "forward: return self.head(x)"
std::string what_text(const CodePlace& place) {
  if (place.text.empty()) return place.function;
  return place.function.empty() ? place.text : place.function + ": " + place.text;
}

std::string name_of(const CodePlace& place, LineGroup group) {
  std::string file = short_path(place.file);
  if (group == LineGroup::kFile) return file;
  if (group == LineGroup::kFunction) return file + " " + place.function;
  return where_text(place);
}

std::string caller_of(const LineRow& row) {
  if (!row.called_from) return "";
  return fmt::format("its backward, from {}:{}", short_path(row.called_from->file),
                     row.called_from->line);
}

void add(Row& row, const LineRow& line) {
  row.at_peak += line.at_peak;
  row.allocated += line.allocated;
  row.largest = std::max(row.largest, line.largest);
  row.allocations += line.allocations;
}

// In the order of the lines, which is by size; groups by their own size.
std::vector<Row> rows_of(const std::vector<LineRow>& lines, LineGroup group) {
  std::vector<Row> rows;
  std::map<std::string, std::size_t> known;
  for (const LineRow& line : lines) {
    const std::string name = name_of(line.place, group);
    const bool each = group == LineGroup::kLine;
    const std::string caller = each ? caller_of(line) : std::string();
    const std::string key =
        fmt::format("{}\n{}\n{}", name, each ? line.place.function : "", caller);
    const auto [found, fresh] = known.try_emplace(key, rows.size());
    if (fresh) rows.push_back({name, each ? what_text(line.place) : "", caller, {}, {}, {}, 0});
    add(rows[found->second], line);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::pair(a.at_peak, a.allocated) > std::pair(b.at_peak, b.allocated);
  });
  return rows;
}

std::string_view title(LineGroup group) {
  if (group == LineGroup::kFile) return "Files";
  return group == LineGroup::kFunction ? "Functions" : "Lines";
}

std::string_view column(LineGroup group) {
  if (group == LineGroup::kFile) return "File";
  return group == LineGroup::kFunction ? "Function" : "Line";
}

Bytes without_line(const DeviceSummary& device) {
  Bytes rest = device.peak_allocated;
  for (const LineRow& row : device.lines) rest -= row.at_peak;
  return rest;
}

std::string growth_name(const GrowthRow& row) {
  if (row.place) return where_text(*row.place);
  if (row.op.empty() && row.module.empty()) return "(outside of ops)";
  return row.module.empty() ? row.op : row.op + " in " + row.module;
}

}  // namespace

std::string line_section(const DeviceSummary& device, LineGroup group, std::size_t top,
                         const Paint& paint) {
  if (device.lines.empty()) return "";
  const std::vector<Row> rows = rows_of(device.lines, group);
  Table table({std::string(column(group)), "At peak", "Allocated", "Largest", "Blocks"});
  for (std::size_t i = 0; i < std::min(top, rows.size()); ++i) {
    const Row& row = rows[i];
    table.add({printable(row.name), dash_or_size(row.at_peak), format_size(row.allocated),
               format_size(row.largest), grouped(row.allocations)});
    if (!row.remark.empty()) table.note(printable(row.remark));
    if (!row.caller.empty()) table.note(printable(row.caller));
  }
  const Bytes rest = without_line(device);
  if (rest > Bytes{}) table.add({"(no line known)", format_size(rest), "", "", ""});
  std::string out =
      "\n" + paint.bold(fmt::format("{} at the peak", title(group))) + "\n" + table.render(paint);
  if (rows.size() > top) {
    out += paint.dim(
        fmt::format("  {} more; --top {} shows more\n", grouped(rows.size() - top), 2 * top));
  }
  return out;
}

std::string region_section(const DeviceSummary& device, const Paint& paint) {
  if (device.regions.empty()) return "";
  Table table({"Region", "At peak", "Highest inside", "Entered"});
  for (const RegionRow& row : device.regions) {
    table.add({printable(row.path), dash_or_size(row.at_peak), dash_or_size(row.highest),
               grouped(row.entered)});
  }
  return "\n" + paint.bold("Regions") + "\n" + table.render(paint);
}

namespace {

std::string growth_section(const DeviceSummary& device, std::string_view title, std::size_t top,
                           const Paint& paint) {
  if (device.growth.empty()) return "";
  Table table({"Kept from", "Each step", "By now", "Blocks", "Steps"});
  for (std::size_t i = 0; i < std::min(top, device.growth.size()); ++i) {
    const GrowthRow& row = device.growth[i];
    table.add({printable(growth_name(row)), format_size(row.per_step), format_size(row.kept),
               grouped(row.blocks), fmt::format("{}-{}", row.first_step, row.last_step)});
    if (row.place) table.note(printable(what_text(*row.place)));
    if (!row.holder.empty()) table.note(printable("held by " + row.holder));
  }
  std::string out = "\n" + paint.bold(title) + "\n" + table.render(paint);
  if (device.growth.size() > top) {
    out += paint.dim(fmt::format("  {} more\n", grouped(device.growth.size() - top)));
  }
  return out;
}

}  // namespace

std::string growth_sections(const Summary& summary, std::size_t top, const Paint& paint) {
  std::string out;
  for (const DeviceSummary& device : summary.devices) {
    std::string title = "Grows with every step";
    if (&device != summary.main_device()) title += " on " + printable(device.name);
    out += growth_section(device, title, top, paint);
  }
  return out;
}

}  // namespace peakline
