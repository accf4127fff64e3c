#include "text/sections.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace peakline {
namespace {

Bytes held(const ModuleRow& row, std::string_view category) {
  for (const NamedBytes& entry : row.by_category) {
    if (entry.name == category) return entry.bytes;
  }
  return {};
}

std::string before_remark(std::string_view label, std::string_view value) {
  return fmt::format("  {:<16} {:>10}   ", label, value);
}

std::string times(std::uint64_t number) { return number == 1 ? "once" : counted(number, "time"); }

// No part that is there rounds to nothing, and only the whole to all of it.
std::string percent(Bytes part, Bytes whole) {
  const double share = 100 * share_of(part, whole);
  if (share < 0.05) return "<0.1%";
  if (part < whole && share >= 99.95) return ">99.9%";
  return fmt::format("{:.1f}%", share);
}

std::string verdict(const DeviceSummary& device, bool partial, std::optional<Bytes> told_spare) {
  const std::string it_fits = partial ? "fits so far" : "fits";
  if (device.ooms > 0 && device.fits == true) {
    return it_fits + ": the script went on after running out of memory " + times(device.ooms);
  }
  const Bytes used = device.peak_reserved.value_or(device.peak_allocated);
  const Bytes spare = told_spare.value_or(device.memory_limit.value_or(used) - used);
  const bool fits = device.ooms == 0 && spare >= Bytes{} && device.fits != false;
  if (fits) return it_fits + ", " + format_size(spare) + " to spare";
  if (device.ooms > 0) return "does not fit: out of memory " + times(device.ooms);
  return spare < Bytes{} ? "does not fit: " + format_size(Bytes{} - spare) + " too little"
                         : "does not fit";
}

}  // namespace

std::string fact(std::string_view label, std::string_view value, std::string_view remark) {
  const std::string line = before_remark(label, value);
  return line + shorten(remark, kColumns - width(line)) + "\n";
}

std::string wrapped_fact(std::string_view label, std::string_view value, std::string_view remark) {
  std::string out;
  for (const std::string& line : wrapped(remark, before_remark(label, value))) out += line + "\n";
  return out;
}

std::string device_title(const DeviceSummary& device, const Paint& paint) {
  std::string out = "\n" + paint.bold(printable(device.name));
  if (!device.model.empty()) out += "  " + printable(device.model);
  return out + "\n";
}

std::string peak_lines(const DeviceSummary& device) {
  std::string out = fact("Peak allocated", format_size(device.peak_allocated),
                         fmt::format("step {}, {}", device.peak_step, device.peak_phase));
  if (!device.peak_op.empty()) out += fact("", "", printable(device.peak_op));
  if (!device.peak_module.empty()) out += fact("", "", "in " + printable(device.peak_module));
  return out;
}

std::string confidence_line(const DeviceSummary& device) {
  if (!device.confidence) return "";
  Bytes whole;
  for (const Bytes part : *device.confidence) whole += part;
  std::string text;
  for (std::size_t i = 0; i < kCertainties; ++i) {
    const Bytes part = (*device.confidence)[i];
    if (part <= Bytes{}) continue;
    std::string name(kCertaintyNames[i]);
    std::ranges::replace(name, '_', ' ');
    text += (text.empty() ? "" : ", ") + percent(part, whole) + " " + name;
  }
  return text.empty() ? "" : wrapped_fact("", "", text);
}

std::string reserved_line(const DeviceSummary& device) {
  if (!device.peak_reserved) return "";
  std::vector<std::string> remarks;
  if (device.peak_allocated > Bytes{}) {
    const double share = share_of(*device.peak_reserved, device.peak_allocated);
    remarks.push_back(fmt::format("{:.1f}% above allocated", 100 * (share - 1)));
  }
  if (device.segments > 0) remarks.push_back(counted(device.segments, "segment"));
  if (device.retries > 0) remarks.push_back(counted(device.retries, "retry", "retries"));
  return fact("Peak reserved", format_size(*device.peak_reserved),
              fmt::format("{}", fmt::join(remarks, ", ")));
}

std::string limit_line(const DeviceSummary& device, bool partial, std::optional<Bytes> spare) {
  if (!device.memory_limit && device.ooms == 0) return "";
  return wrapped_fact("Memory limit", device.memory_limit ? format_size(*device.memory_limit) : "?",
                      verdict(device, partial, spare));
}

std::string settings_line(const Summary& summary) {
  if (summary.allocator_conf.value_or("").empty()) return "";
  return fact("Allocator", "", printable(*summary.allocator_conf));
}

std::string category_bars(const DeviceSummary& device, const Paint& paint) {
  constexpr std::size_t kBar = 30;
  if (device.by_subcategory.empty()) return "";
  std::string out = "\n" + paint.bold("By category at the peak") + "\n";
  for (const NamedBytes& row : device.by_subcategory) {
    const double share = share_of(row.bytes, device.peak_allocated);
    std::string line =
        fmt::format("  {:<24} {:>10}  {:>5.1f}%  {}", shorten(printable(row.name), 24),
                    format_size(row.bytes), 100 * share, bar(share, kBar));
    while (line.ends_with(' ')) line.pop_back();
    out += line + "\n";
  }
  return out;
}

std::vector<std::string> module_columns() {
  return {"Module", "Total", "Parameter", "Gradient", "Activation", "Rest"};
}

std::vector<std::string> module_cells(const ModuleRow& row) {
  const Bytes parameter = held(row, "Parameter");
  const Bytes gradient = held(row, "Gradient");
  const Bytes activation = held(row, "Activation");
  return {dash_or_size(row.peak), dash_or_size(parameter), dash_or_size(gradient),
          dash_or_size(activation), dash_or_size(row.peak - parameter - gradient - activation)};
}

std::string step_table(const std::vector<StepRow>& steps, std::size_t most, const Paint& paint) {
  const std::size_t count = steps.size();
  if (count < 2) return "";
  Table table({"Step", "Peak allocated", "Peak reserved"});
  for (std::size_t i = 0; i < count; ++i) {
    const bool head = i < (most + 1) / 2;
    const bool tail = i >= count - most / 2;
    if (count > most && !head && !tail) {
      if (i == (most + 1) / 2) table.add({"…", "", ""});
      continue;
    }
    table.add({std::to_string(i + 1), format_size(steps[i].peak_allocated),
               dash_or_size(steps[i].peak_reserved)});
  }
  return "\n" + paint.bold("Steps") + "\n" + table.render(paint);
}

std::string other_devices(const Summary& summary, const Paint& paint) {
  Table table({"Other devices", "Peak allocated", "Peak reserved"});
  for (std::size_t i = 1; i < summary.devices.size(); ++i) {
    const DeviceSummary& device = summary.devices[i];
    table.add({printable(device.name), format_size(device.peak_allocated),
               dash_or_size(device.peak_reserved)});
  }
  return table.empty() ? "" : "\n" + table.render(paint);
}

}  // namespace peakline
