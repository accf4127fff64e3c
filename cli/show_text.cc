#include "show_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace peakline::cli {
namespace {

std::string info_text(const Summary& summary, const std::string& key) {
  const auto found = summary.info.find(key);
  return found == summary.info.end() ? std::string() : printable(found->second);
}

double share_of(Bytes part, Bytes whole) {
  return whole > Bytes{} ? static_cast<double>(part.raw()) / static_cast<double>(whole.raw()) : 0;
}

std::string headline(const std::string& name, const Summary& summary) {
  std::string out = printable(name);
  if (const std::string torch = info_text(summary, "torch"); !torch.empty()) {
    out += ", torch " + torch;
  }
  const std::uint64_t steps = summary.steps_completed;
  out += fmt::format(", {} step{}, {} events, {}", grouped(steps), steps == 1 ? "" : "s",
                     grouped(summary.events), format_time(summary.duration));
  return shorten(out, kColumns) + "\n";
}

std::string fact(std::string_view label, std::string_view value, std::string_view remark) {
  const std::string line = fmt::format("  {:<16} {:>10}   ", label, value);
  return line + shorten(remark, kColumns - width(line)) + "\n";
}

// When, and below it in which op and module.
std::string peak_lines(const DeviceSummary& device) {
  std::string out = fact("Peak allocated", format_size(device.peak_allocated),
                         fmt::format("step {}, {}", device.peak_step, device.peak_phase));
  if (!device.peak_op.empty()) out += fact("", "", printable(device.peak_op));
  if (!device.peak_module.empty()) out += fact("", "", "in " + printable(device.peak_module));
  return out;
}

std::string reserved_line(const DeviceSummary& device) {
  if (!device.peak_reserved) return "";
  std::string remark =
      fmt::format("{:.1f}% above allocated",
                  100 * (share_of(*device.peak_reserved, device.peak_allocated) - 1));
  if (device.segments > 0) remark += fmt::format(", {} segments", grouped(device.segments));
  if (device.retries > 0) {
    remark +=
        fmt::format(", {} {}", grouped(device.retries), device.retries == 1 ? "retry" : "retries");
  }
  return fact("Peak reserved", format_size(*device.peak_reserved), remark);
}

std::string limit_line(const DeviceSummary& device) {
  if (device.ooms > 0) {
    const std::string times = device.ooms == 1 ? "once" : grouped(device.ooms) + " times";
    return fact("Memory limit", device.memory_limit ? format_size(*device.memory_limit) : "?",
                "does not fit: out of memory " + times);
  }
  if (!device.memory_limit) return "";
  const Bytes used = device.peak_reserved.value_or(device.peak_allocated);
  return fact("Memory limit", format_size(*device.memory_limit),
              "fits, " + format_size(*device.memory_limit - used) + " to spare");
}

std::string settings_line(const Summary& summary) {
  if (summary.allocator_conf.value_or("").empty()) return "";
  return fact("Allocator", "", printable(*summary.allocator_conf));
}

std::string device_head(const DeviceSummary& device, const Paint& paint) {
  std::string out = "\n" + paint.bold(printable(device.name));
  if (!device.model.empty()) out += "  " + printable(device.model);
  out += "\n";
  return out + peak_lines(device) + reserved_line(device) + limit_line(device);
}

std::string categories(const DeviceSummary& device, const Paint& paint) {
  constexpr std::size_t kBar = 30;
  std::string out = "\n" + paint.bold("By category at the peak") + "\n";
  for (const NamedBytes& row : device.by_subcategory) {
    const double share = share_of(row.bytes, device.peak_allocated);
    out += fmt::format("  {:<24} {:>10}  {:>5.1f}%  {}\n", shorten(printable(row.name), 24),
                       format_size(row.bytes), 100 * share, bar(share, kBar));
  }
  return out;
}

Bytes held(const ModuleRow& row, std::string_view category) {
  for (const NamedBytes& entry : row.by_category) {
    if (entry.name == category) return entry.bytes;
  }
  return {};
}

std::string dash_or_size(Bytes bytes) { return bytes == Bytes{} ? "-" : format_size(bytes); }

// The last part of a path, indented under its parent.
std::string tree_name(const ModuleRow& row, const std::string& parent) {
  std::string_view name = row.path;
  if (!parent.empty() && name.starts_with(parent + ".")) name.remove_prefix(parent.size() + 1);
  return std::string(row.depth * 2, ' ') + printable(name);
}

std::string modules(const DeviceSummary& device, std::size_t depth, const Paint& paint) {
  Table table({"Module", "Total", "Parameter", "Gradient", "Activation", "Rest"});
  std::vector<std::string> parents;  // by depth
  std::size_t deeper = 0;
  for (const ModuleRow& row : device.modules) {
    parents.resize(row.depth + 1);
    parents[row.depth] = row.path;
    if (row.depth > depth) {
      ++deeper;
      continue;
    }
    const Bytes parameter = held(row, "Parameter");
    const Bytes gradient = held(row, "Gradient");
    const Bytes activation = held(row, "Activation");
    table.add({tree_name(row, row.depth == 0 ? "" : parents[row.depth - 1]), dash_or_size(row.peak),
               dash_or_size(parameter), dash_or_size(gradient), dash_or_size(activation),
               dash_or_size(row.peak - parameter - gradient - activation)});
  }
  if (table.empty()) return "";
  if (device.outside_modules > Bytes{}) {
    const std::string rest = format_size(device.outside_modules);
    table.add({"(outside modules)", rest, "", "", "", ""});
  }
  std::string out = "\n" + paint.bold("Modules at the peak") + "\n" + table.render(paint);
  if (deeper > 0) {
    out += paint.dim(fmt::format("  {} modules lie deeper; --depth {} shows more\n",
                                 grouped(deeper), depth + 1));
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

std::string reserved_cell(const StepRow& step) {
  return step.peak_reserved ? format_size(*step.peak_reserved) : "-";
}

// The first and the last ones; steady runs repeat in between.
std::string steps(const DeviceSummary& device, std::size_t most, const Paint& paint) {
  const std::size_t count = device.steps.size();
  if (count < 2) return "";
  Table table({"Step", "Peak allocated", "Peak reserved"});
  for (std::size_t i = 0; i < count; ++i) {
    const bool head = i < (most + 1) / 2;
    const bool tail = i >= count - most / 2;
    if (count > most && !head && !tail) {
      if (i == (most + 1) / 2) table.add({"…", "", ""});
      continue;
    }
    table.add({std::to_string(i + 1), format_size(device.steps[i].peak_allocated),
               reserved_cell(device.steps[i])});
  }
  return "\n" + paint.bold("Steps") + "\n" + table.render(paint);
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

std::string other_devices(const Summary& summary, const Paint& paint) {
  Table table({"Other devices", "Peak allocated", "Peak reserved"});
  for (std::size_t i = 1; i < summary.devices.size(); ++i) {
    const DeviceSummary& device = summary.devices[i];
    table.add({printable(device.name), format_size(device.peak_allocated),
               device.peak_reserved ? format_size(*device.peak_reserved) : "-"});
  }
  return table.empty() ? "" : "\n" + table.render(paint);
}

}  // namespace

std::string show_text(const std::string& name, const Summary& summary, const ShowOptions& options,
                      const Paint& paint) {
  std::string out = headline(name, summary);
  const DeviceSummary* device = summary.main_device();
  if (device == nullptr) return out + "\nNothing was allocated in this recording.\n";
  out += device_head(*device, paint) + settings_line(summary);
  out += categories(*device, paint);
  out += modules(*device, options.depth, paint);
  out += ops(*device, options.top, paint);
  out += steps(*device, options.steps, paint);
  out += timeline(*device, paint);
  out += other_devices(summary, paint);
  return out;
}

}  // namespace peakline::cli
