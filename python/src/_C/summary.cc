// Bindings of the answers over a recording.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <peakline/advice.h>
#include <peakline/show_text.h>
#include <peakline/summary.h>

#include "bindings.h"
#include "capture/spool.h"
#include "errors.h"

namespace py = pybind11;

namespace peakline::bindings {
namespace {

std::int64_t raw(Bytes bytes) { return bytes.raw(); }
std::optional<std::int64_t> raw(std::optional<Bytes> bytes) {
  if (!bytes) return std::nullopt;
  return bytes->raw();
}

py::dict by_name(const std::vector<NamedBytes>& rows) {
  py::dict out;
  for (const NamedBytes& row : rows) out[py::str(row.name)] = row.bytes.raw();
  return out;
}

py::list modules(const DeviceSummary& device) {
  py::list out;
  for (const ModuleRow& row : device.modules) {
    out.append(py::dict(py::arg("path") = row.path, py::arg("type") = row.type,
                        py::arg("depth") = row.depth, py::arg("peak") = raw(row.peak),
                        py::arg("own") = raw(row.own),
                        py::arg("by_category") = by_name(row.by_category),
                        py::arg("highest_while_running") = raw(row.highest_while_running),
                        py::arg("forward_calls") = row.forward_calls));
  }
  return out;
}

py::list ops(const DeviceSummary& device) {
  py::list out;
  for (const OpRow& row : device.ops) {
    out.append(
        py::dict(py::arg("name") = row.name, py::arg("calls") = row.calls,
                 py::arg("allocations") = row.allocations, py::arg("at_peak") = raw(row.at_peak),
                 py::arg("allocated") = raw(row.allocated), py::arg("largest") = raw(row.largest)));
  }
  return out;
}

py::object place(const std::optional<CodePlace>& found) {
  if (!found) return py::none();
  return py::dict(py::arg("file") = found->file, py::arg("line") = found->line,
                  py::arg("function") = found->function, py::arg("text") = found->text);
}

py::list lines(const DeviceSummary& device) {
  py::list out;
  for (const LineRow& row : device.lines) {
    out.append(py::dict(
        py::arg("place") = place(row.place), py::arg("called_from") = place(row.called_from),
        py::arg("allocations") = row.allocations, py::arg("at_peak") = raw(row.at_peak),
        py::arg("allocated") = raw(row.allocated), py::arg("largest") = raw(row.largest),
        py::arg("by_category") = by_name(row.by_category)));
  }
  return out;
}

py::list regions(const DeviceSummary& device) {
  py::list out;
  for (const RegionRow& row : device.regions) {
    out.append(py::dict(py::arg("path") = row.path, py::arg("entered") = row.entered,
                        py::arg("at_peak") = raw(row.at_peak),
                        py::arg("highest") = raw(row.highest)));
  }
  return out;
}

py::list growth(const std::vector<GrowthRow>& rows) {
  py::list out;
  for (const GrowthRow& row : rows) {
    py::list examples;
    for (const Address address : row.examples) examples.append(address.raw());
    out.append(py::dict(py::arg("place") = place(row.place), py::arg("op") = row.op,
                        py::arg("module") = row.module, py::arg("kept") = raw(row.kept),
                        py::arg("blocks") = row.blocks, py::arg("per_step") = raw(row.per_step),
                        py::arg("first_step") = row.first_step,
                        py::arg("last_step") = row.last_step, py::arg("holder") = row.holder,
                        py::arg("key") = row.key, py::arg("examples") = examples));
  }
  return out;
}

py::list steps(const DeviceSummary& device) {
  py::list out;
  for (const StepRow& row : device.steps) {
    out.append(py::dict(py::arg("peak_allocated") = raw(row.peak_allocated),
                        py::arg("peak_reserved") = raw(row.peak_reserved)));
  }
  return out;
}

py::list timeline(const DeviceSummary& device) {
  py::list out;
  for (const TimelinePoint& point : device.timeline.points) {
    py::dict by_category;
    for (std::size_t i = 0; i < point.by_category.size(); ++i) {
      by_category[py::str(device.timeline.categories[i])] = point.by_category[i].raw();
    }
    out.append(
        py::dict(py::arg("event") = point.first_event, py::arg("time_ns") = point.time.raw(),
                 py::arg("lowest") = raw(point.lowest), py::arg("highest") = raw(point.highest),
                 py::arg("reserved") = raw(point.reserved), py::arg("by_category") = by_category));
  }
  return out;
}

py::dict to_dict(const DeviceSummary& device) {
  return py::dict(
      py::arg("name") = device.name, py::arg("model") = device.model,
      py::arg("peak_allocated") = raw(device.peak_allocated),
      py::arg("peak_reserved") = raw(device.peak_reserved),
      py::arg("allocated_at_end") = raw(device.allocated_at_end),
      py::arg("segments") = device.segments, py::arg("ooms") = device.ooms,
      py::arg("peak_step") = device.peak_step, py::arg("peak_phase") = device.peak_phase,
      py::arg("peak_op") = device.peak_op, py::arg("peak_module") = device.peak_module,
      py::arg("by_category") = by_name(device.by_category), py::arg("modules") = modules(device),
      py::arg("outside_modules") = raw(device.outside_modules), py::arg("ops") = ops(device),
      py::arg("lines") = lines(device), py::arg("regions") = regions(device),
      py::arg("growth") = growth(device.growth), py::arg("steps") = steps(device),
      py::arg("timeline") = timeline(device));
}

Result<TraceReader> reader_of(const capture::Spool& spool) {
  Result<std::unique_ptr<Source>> source = spool.source();
  if (!source.ok()) return source.status();
  return TraceReader::open(std::move(*source));
}

Result<Summary> summarize_spool(const capture::Spool& spool, std::size_t timeline_points,
                                bool with_advice) {
  const py::gil_scoped_release unlocked;
  Result<TraceReader> reader = reader_of(spool);
  if (!reader.ok()) return reader.status();
  Result<Summary> summary = summarize(*reader, {timeline_points});
  if (!with_advice || !summary.ok()) return summary;
  Result<std::vector<Saving>> advice = advise([&spool] { return spool.source(); });
  if (advice.ok()) summary->advice = std::move(*advice);
  return summary;
}

py::dict summary_of(const capture::Spool& spool, const std::string& name,
                    std::size_t timeline_points, bool with_advice) {
  const Summary summary = value_or_throw(summarize_spool(spool, timeline_points, with_advice));
  py::list devices;
  for (const DeviceSummary& device : summary.devices) devices.append(to_dict(device));
  return py::dict(
      py::arg("devices") = devices, py::arg("info") = summary.info,
      py::arg("events") = summary.events, py::arg("steps_completed") = summary.steps_completed,
      py::arg("duration_ns") = summary.duration.raw(), py::arg("warnings") = summary.warnings,
      py::arg("json") = summary_to_json(summary),
      py::arg("text") = show_text(name, summary, {}, Paint(false)));
}

Result<GrowthSoFar> growth_of_spool(const capture::Spool& spool) {
  const py::gil_scoped_release unlocked;
  Result<TraceReader> reader = reader_of(spool);
  if (!reader.ok()) return reader.status();
  return growth_so_far(*reader);
}

py::dict growth_dict(const capture::Spool& spool) {
  const GrowthSoFar found = value_or_throw(growth_of_spool(spool));
  py::dict rows;
  for (const DeviceGrowth& device : found.devices) {
    rows[py::str(device.device)] = growth(device.rows);
  }
  return py::dict(py::arg("rows") = rows, py::arg("suspects") = found.suspects);
}

}  // namespace

void bind_summary(py::module_& m) {
  m.def("growth_so_far", &growth_dict, py::arg("spool"));
  m.def("summarize", &summary_of, py::arg("spool"), py::arg("name"),
        py::arg("timeline_points") = 512, py::arg("advise") = false);
}

}  // namespace peakline::bindings
