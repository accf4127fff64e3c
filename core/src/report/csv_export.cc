#include <fmt/format.h>

#include <peakline/summary.h>

namespace peakline {
namespace {

// Quotes a field when it holds anything that a CSV reader would trip over.
std::string field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

std::string bytes_or_nothing(const std::optional<Bytes>& bytes) {
  return bytes ? std::to_string(bytes->raw()) : std::string();
}

void categories(std::string& out, const DeviceSummary& device) {
  for (const NamedBytes& row : device.by_subcategory) {
    out += fmt::format("{},{},{}\n", field(device.name), field(row.name), row.bytes.raw());
  }
}

void modules(std::string& out, const DeviceSummary& device) {
  for (const ModuleRow& row : device.modules) {
    for (const NamedBytes& held : row.by_category) {
      out += fmt::format("{},{},{},{},{}\n", field(device.name), field(row.path), field(row.type),
                         field(held.name), held.bytes.raw());
    }
  }
}

void ops(std::string& out, const DeviceSummary& device) {
  for (const OpRow& row : device.ops) {
    out += fmt::format("{},{},{},{},{},{},{}\n", field(device.name), field(row.name), row.calls,
                       row.allocations, row.at_peak.raw(), row.allocated.raw(), row.largest.raw());
  }
}

void lines(std::string& out, const DeviceSummary& device) {
  for (const LineRow& row : device.lines) {
    out +=
        fmt::format("{},{},{},{},{},{},{},{},{}\n", field(device.name), field(row.place.file),
                    row.place.line, field(row.place.function), row.allocations, row.at_peak.raw(),
                    row.allocated.raw(), row.largest.raw(), field(row.place.text));
  }
}

void regions(std::string& out, const DeviceSummary& device) {
  for (const RegionRow& row : device.regions) {
    out += fmt::format("{},{},{},{},{}\n", field(device.name), field(row.path), row.entered,
                       row.at_peak.raw(), row.highest.raw());
  }
}

void steps(std::string& out, const DeviceSummary& device) {
  for (std::size_t i = 0; i < device.steps.size(); ++i) {
    out += fmt::format("{},{},{},{}\n", field(device.name), i + 1,
                       device.steps[i].peak_allocated.raw(),
                       bytes_or_nothing(device.steps[i].peak_reserved));
  }
}

void timeline(std::string& out, const DeviceSummary& device) {
  for (const TimelinePoint& point : device.timeline.points) {
    out +=
        fmt::format("{},{},{},{},{},{}\n", field(device.name), point.first_event, point.time.raw(),
                    point.lowest.raw(), point.highest.raw(), point.reserved.raw());
  }
}

struct Table {
  std::string_view name;
  std::string_view header;
  void (*rows)(std::string&, const DeviceSummary&);
};

constexpr Table kTables[] = {
    {"categories", "device,category,bytes\n", categories},
    {"modules", "device,path,type,category,bytes\n", modules},
    {"ops", "device,op,calls,allocations,at_peak,allocated,largest\n", ops},
    {"lines", "device,file,line,function,allocations,at_peak,allocated,largest,text\n", lines},
    {"regions", "device,region,entered,at_peak,highest\n", regions},
    {"steps", "device,step,peak_allocated,peak_reserved\n", steps},
    {"timeline", "device,first_event,time_ns,lowest,highest,reserved\n", timeline},
};

}  // namespace

Result<std::string> summary_to_csv(const Summary& summary, std::string_view table) {
  for (const Table& candidate : kTables) {
    if (candidate.name != table) continue;
    std::string out(candidate.header);
    for (const DeviceSummary& device : summary.devices) candidate.rows(out, device);
    return out;
  }
  return invalid_input(fmt::format(
      "there is no table '{}'; choose categories, modules, ops, lines, regions, steps or timeline",
      table));
}

}  // namespace peakline
