// Bindings of the simulated allocator over a recording.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <peakline/device_profile.h>
#include <peakline/simulate.h>
#include <peakline/simulate_text.h>

#include "bindings.h"
#include "capture/spool.h"
#include "errors.h"

namespace py = pybind11;

namespace peakline::bindings {
namespace {

// The answer twice: as JSON, and as people read it.
std::pair<std::string, std::string> simulate_spool(
    const capture::Spool& spool, const std::string& name, std::optional<std::string> conf,
    std::optional<std::int64_t> memory, const std::string& device, bool compare, bool empty_cache) {
  SimulateOptions options;
  options.conf = std::move(conf);
  options.device = device;
  options.compare = compare;
  options.empty_cache_each_step = empty_cache;
  if (memory) options.memory = Bytes(*memory);
  const auto run = [&] {
    const py::gil_scoped_release unlocked;
    return simulate([&spool] { return spool.source(); }, options);
  };
  const SimulationResult result = value_or_throw(run());
  return {simulation_to_json(result), simulation_text(name, result, Paint(false))};
}

}  // namespace

void bind_simulate(py::module_& m) {
  m.def("simulate", &simulate_spool, py::arg("spool"), py::arg("name"), py::arg("conf"),
        py::arg("memory"), py::arg("device"), py::arg("compare"), py::arg("empty_cache") = false);
  m.def("canonical_settings", [](const std::string& conf, const std::string& torch) {
    const TorchVersion version = value_or_throw(parse_torch_version(torch));
    return value_or_throw(AllocatorConfig::parse(conf, version)).canonical();
  });
  m.def("known_gpus", [] {
    std::vector<std::string> ids;
    for (const DeviceProfile& profile : known_profiles()) ids.push_back(profile.id);
    return ids;
  });
}

}  // namespace peakline::bindings
