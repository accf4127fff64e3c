#include <fmt/format.h>

#include <algorithm>
#include <array>

#include <peakline/show_text.h>

#include "text/line_sections.h"
#include "text/sections.h"

namespace peakline {
namespace {

std::string headline(const std::string& name, const Summary& summary) {
  std::string out = printable(name);
  if (const auto torch = summary.info.find("torch"); torch != summary.info.end()) {
    out += ", torch " + printable(torch->second);
  }
  out += fmt::format(", {}, {}, {}", counted(summary.steps_completed, "step"),
                     counted(summary.events, "event"), format_time(summary.duration));
  return shorten(out, kColumns) + "\n";
}

// The last part of a path, indented under its parent.
std::string tree_name(const ModuleRow& row, const std::string& parent) {
  std::string_view name = row.path;
  if (!parent.empty() && name.starts_with(parent + ".")) name.remove_prefix(parent.size() + 1);
  return std::string(row.depth * 2, ' ') + printable(name);
}

std::string modules(const DeviceSummary& device, std::size_t depth, const Paint& paint) {
  Table table(module_columns());
  std::vector<std::string> parents;  // by depth
  std::size_t deeper = 0;
  for (const ModuleRow& row : device.modules) {
    parents.resize(row.depth + 1);
    parents[row.depth] = row.path;
    if (row.depth > depth) {
      ++deeper;
      continue;
    }
    std::vector<std::string> cells = module_cells(row);
    cells.insert(cells.begin(), tree_name(row, row.depth == 0 ? "" : parents[row.depth - 1]));
    table.add(std::move(cells));
  }
  if (table.empty()) return "";
  if (device.outside_modules > Bytes{}) {
    const std::string rest = format_size(device.outside_modules);
    table.add({"(outside modules)", rest, "", "", "", ""});
  }
  std::string out = "\n" + paint.bold("Modules at the peak") + "\n" + table.render(paint);
  if (deeper > 0) {
    out += paint.dim(fmt::format("  {} deeper; --depth {} shows more\n",
                                 counted(deeper, "module lies", "modules lie"), depth + 1));
  }
  return out;
}

std::string ops(const DeviceSummary& device, std::size_t top, const Paint& paint) {
  Table table({"Op", "At peak", "Allocated", "Largest", "Calls"});
  for (std::size_t i = 0; i < std::min(top, device.ops.size()); ++i) {
    const OpRow& row = device.ops[i];
    table.add({printable(row.name), dash_or_size(row.at_peak), format_size(row.allocated),
               format_size(row.largest), grouped(row.calls)});
  }
  if (table.empty()) return "";
  return "\n" + paint.bold("Top ops") + "\n" + table.render(paint);
}

// The highest total of each column's stretch of events.
std::vector<Bytes> resample(const TimelineView& view, std::size_t columns) {
  std::vector<Bytes> out(columns);
  const std::size_t count = view.points.size();
  for (std::size_t column = 0; column < columns; ++column) {
    const std::size_t first = column * count / columns;
    const std::size_t last = std::max(first + 1, (column + 1) * count / columns);
    for (std::size_t i = first; i < std::min(last, count); ++i) {
      out[column] = std::max(out[column], view.points[i].highest);
    }
  }
  return out;
}

std::string timeline(const DeviceSummary& device, const Paint& paint) {
  constexpr std::size_t kChart = 64;
  constexpr std::size_t kRows = 6;
  static constexpr std::array<std::string_view, 9> kCells{" ", "▁", "▂", "▃", "▄",
                                                          "▅", "▆", "▇", "█"};
  if (device.timeline.points.size() < 2) return "";
  const std::vector<Bytes> values = resample(device.timeline, kChart);
  std::string out = "\n" + paint.bold("Allocated over time") + "\n";
  for (std::size_t row = kRows; row-- > 0;) {
    const std::string label = row + 1 == kRows ? format_size(device.peak_allocated)
                              : row == 0       ? "0"
                                               : "";
    out += fmt::format("  {:>10} ", label);
    std::string cells;
    for (const Bytes value : values) {
      const double level =
          share_of(value, device.peak_allocated) * kRows - static_cast<double>(row);
      cells += kCells[static_cast<std::size_t>(std::clamp(level, 0.0, 1.0) * 8)];
    }
    while (cells.ends_with(' ')) cells.pop_back();
    out += cells + "\n";
  }
  return out;
}

// What to say where there is nothing to show.
std::string or_else(const std::string& table, std::string_view why) {
  return table.empty() ? "\n" + std::string(why) + "\n" : table;
}

std::string one_table(const DeviceSummary& device, const ShowOptions& options, const Paint& paint) {
  constexpr std::string_view kNoLines =
      "This recording has no call stacks.\n"
      "peakline run --stacks all, or track(stacks=\"all\"), records them.";
  switch (options.by) {
    case ShowBy::kCategory:
      return category_bars(device, paint);
    case ShowBy::kModule:
      return or_else(modules(device, options.depth, paint), "No module ran in this recording.");
    case ShowBy::kOp:
      return or_else(ops(device, options.top, paint), "This recording has no ops.");
    case ShowBy::kLine:
      return or_else(line_section(device, LineGroup::kLine, options.top, paint), kNoLines);
    case ShowBy::kFunction:
      return or_else(line_section(device, LineGroup::kFunction, options.top, paint), kNoLines);
    case ShowBy::kFile:
      return or_else(line_section(device, LineGroup::kFile, options.top, paint), kNoLines);
    case ShowBy::kRegion:
      return or_else(region_section(device, paint), "The program named no regions.");
    case ShowBy::kGrowth:  // which is of all devices
    case ShowBy::kEverything:
      break;
  }
  return "";
}

std::string growth(const Summary& summary, const ShowOptions& options, const Paint& paint) {
  constexpr std::uint64_t kFewest = 3;  // steps
  if (summary.steps_completed < kFewest) {
    return fmt::format("\nGrowth shows from {} steps on, and this recording has {}.\n", kFewest,
                       summary.steps_completed);
  }
  return or_else(growth_sections(summary, options.top, paint),
                 "Nothing grows with every step of this recording.");
}

}  // namespace

std::string show_text(const std::string& name, const Summary& summary, const ShowOptions& options,
                      const Paint& paint) {
  std::string out = headline(name, summary);
  const DeviceSummary* device = summary.main_device();
  if (device == nullptr) return out + "\nNothing was allocated in this recording.\n";
  out += device_title(*device, paint) + peak_lines(*device) + confidence_line(*device);
  out += reserved_line(*device) + limit_line(*device, summary.info.contains("partial")) +
         settings_line(summary);
  if (options.by == ShowBy::kGrowth) return out + growth(summary, options, paint);
  if (options.by != ShowBy::kEverything) return out + one_table(*device, options, paint);
  out += category_bars(*device, paint);
  out += modules(*device, options.depth, paint);
  out += ops(*device, options.top, paint);
  out += line_section(*device, LineGroup::kLine, options.top, paint);
  out += region_section(*device, paint);
  out += growth_sections(summary, options.top, paint);
  out += step_table(device->steps, options.steps, paint);
  out += timeline(*device, paint);
  out += other_devices(summary, paint);
  out += advice_lines(summary.advice, paint);
  return out;
}

}  // namespace peakline
