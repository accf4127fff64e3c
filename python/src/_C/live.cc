// Bindings of what a run can say while it goes on.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <peakline/live.h>

#include "bindings.h"
#include "capture/spool.h"
#include "errors.h"

namespace py = pybind11;

namespace peakline::bindings {
namespace {

std::optional<std::int64_t> raw(std::optional<Bytes> bytes) {
  if (!bytes) return std::nullopt;
  return bytes->raw();
}

std::unique_ptr<LiveRun> follow(std::shared_ptr<capture::Spool> spool) {
  return std::make_unique<LiveRun>([spool = std::move(spool)] { return spool->source(); });
}

py::dict to_dict(const LiveDevice& device) {
  py::dict by_category;
  for (const NamedBytes& row : device.by_category) {
    by_category[py::str(row.name)] = row.bytes.raw();
  }
  return py::dict(py::arg("device") = device.name, py::arg("allocated") = device.allocated.raw(),
                  py::arg("reserved") = raw(device.reserved),
                  py::arg("peak_allocated") = device.peak_allocated.raw(),
                  py::arg("peak_reserved") = raw(device.peak_reserved),
                  py::arg("step_peak") = device.step_peak.raw(),
                  py::arg("by_category") = by_category);
}

std::pair<std::uint64_t, py::list> now(LiveRun& run) {
  const auto ask = [&run] {
    const py::gil_scoped_release unlocked;
    return run.now();
  };
  const LiveTotals totals = value_or_throw(ask());
  py::list devices;
  for (const LiveDevice& device : totals.devices) devices.append(to_dict(device));
  return {totals.steps_completed, devices};
}

}  // namespace

void bind_live(py::module_& m) {
  py::class_<LiveRun>(m, "LiveRun").def(py::init(&follow)).def("now", &now);
}

}  // namespace peakline::bindings
