// Bindings of how long ops take and of checkpointing plans: `peakline._C.cost`.
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <map>
#include <string>

#include <peakline/checkpoint_plan.h>
#include <peakline/cost.h>
#include <peakline/measured_calls.h>

#include "bindings.h"
#include "errors.h"
#include "vgpu/engine.h"
#include "vgpu/op_call.h"

namespace peakline::bindings {
namespace {

// Tensors of any device count as the GPU's where the caller says so.
TensorMeta tensor_of(const py::handle& object, bool anywhere) {
  TensorMeta meta = vgpu::meta_of(THPVariable_Unpack(object.ptr()));
  meta.on_gpu = meta.on_gpu || anywhere;
  return meta;
}

bool is_tensor(const py::handle& object) { return THPVariable_Check(object.ptr()); }

Argument list_of(const py::sequence& items, bool anywhere) {
  bool tensors = py::len(items) > 0;
  for (const py::handle item : items) tensors = tensors && (is_tensor(item) || item.is_none());
  if (tensors) {
    std::vector<TensorMeta> list;
    for (const py::handle item : items) {
      if (is_tensor(item)) list.push_back(tensor_of(item, anywhere));
    }
    return list;
  }
  std::vector<std::int64_t> numbers;
  std::vector<bool> bits;
  for (const py::handle item : items) {
    if (py::isinstance<py::bool_>(item))
      bits.push_back(item.cast<bool>());
    else if (py::isinstance<py::int_>(item))
      numbers.push_back(item.cast<std::int64_t>());
    else
      return std::monostate{};
  }
  if (!bits.empty()) return bits;
  return numbers;
}

Argument argument_of(const py::handle& object, bool anywhere) {
  if (object.is_none()) return std::monostate{};
  if (is_tensor(object)) return tensor_of(object, anywhere);
  if (py::isinstance<py::bool_>(object)) return object.cast<bool>();
  if (py::isinstance<py::int_>(object)) return object.cast<std::int64_t>();
  if (py::isinstance<py::float_>(object)) return object.cast<double>();
  if (py::isinstance<py::str>(object)) return object.cast<std::string>();
  if (py::isinstance<py::tuple>(object) || py::isinstance<py::list>(object)) {
    return list_of(py::reinterpret_borrow<py::sequence>(object), anywhere);
  }
  return std::monostate{};
}

// (milliseconds, flops, kernels) of one call. `outputs`: tensors that are new are fresh.
py::tuple time_of(const std::string& name, const std::string& overload, const py::list& arguments,
                  const py::list& outputs, bool view, bool anywhere, const DeviceProfile& gpu) {
  OpCall call;
  call.name = name;
  call.overload = overload;
  for (const py::handle argument : arguments) {
    call.arguments.push_back(argument_of(argument, anywhere));
  }
  for (const py::handle output : outputs) {
    if (is_tensor(output)) call.outputs.push_back({tensor_of(output, anywhere), true});
  }
  call.view = view;
  KernelState state;
  state.switches = vgpu::kernel_switches();
  const OpTime time = op_time(call, gpu, state);
  return py::make_tuple(time.us / 1e3, time.flops, time.kernels);
}

DeviceProfile profile_named(const std::optional<std::string>& name) {
  if (name) return value_or_throw(load_profile(*name));
  if (const vgpu::Engine* engine = vgpu::current_engine()) return engine->profile();
  return value_or_throw(load_profile("h200"));
}

CheckpointNode node_of(const py::dict& from) {
  CheckpointNode node;
  node.subtree_end = from["subtree_end"].cast<int>();
  node.post_position = from["post_position"].cast<int>();
  node.may_checkpoint = from["may_checkpoint"].cast<bool>();
  node.memory = from["memory"].cast<double>();
  node.saved = from["saved"].cast<double>();
  node.act_total = from["act_total"].cast<double>();
  node.act_grad = from["act_grad"].cast<double>();
  node.grad_total = from["grad_total"].cast<double>();
  node.runtime = from["runtime"].cast<double>();
  node.slopes = from["slopes"].cast<std::vector<double>>();
  node.intercepts = from["intercepts"].cast<std::vector<double>>();
  return node;
}

py::tuple check(const py::list& nodes, double parameters, double budget, double world_size,
                const std::vector<double>& discard) {
  CheckpointProblem problem;
  problem.parameters = parameters;
  problem.budget = budget;
  problem.world_size = world_size;
  for (const py::handle node : nodes) {
    problem.nodes.push_back(node_of(py::reinterpret_borrow<py::dict>(node)));
  }
  const CheckpointCost cost = value_or_throw(check_plan(problem, discard));
  return py::make_tuple(cost.recompute_ms, cost.peak);
}

void bind_plans(py::module_& m) {
  m.def("fit_pieces", [](const std::vector<double>& x, const std::vector<double>& y, int count) {
    const Pieces pieces = value_or_throw(fit_pieces(x, y, count));
    return py::make_tuple(pieces.slopes, pieces.intercepts, pieces.breaks);
  });
  m.def("check_plan", &check);
  m.def("check_choices", [](std::vector<double> memory, std::vector<double> runtime,
                            std::vector<int> fixed, std::vector<std::pair<int, int>> equal,
                            double budget, const std::vector<int>& save) {
    return value_or_throw(check_choices(
        {std::move(memory), std::move(runtime), std::move(fixed), std::move(equal), budget}, save));
  });
}

}  // namespace

void bind_cost(py::module_& parent) {
  py::module_ m = parent.def_submodule("cost", "How long ops take on a GPU.");
  py::class_<DeviceProfile>(m, "Profile")
      .def(py::init(&profile_named), py::arg("gpu") = py::none())
      .def_readonly("id", &DeviceProfile::id)
      .def_readonly("name", &DeviceProfile::name)
      .def("to_toml", [](const DeviceProfile& gpu) { return to_toml(gpu); })
      // The data sheet's dense rate in 16 bits: what utilisation is a share of.
      .def_property_readonly("peak_tflops",
                             [](const DeviceProfile& gpu) { return gpu.time.tensor16_tflops; })
      // The data sheet's dense rates, for models that know nothing else of a GPU.
      .def_property_readonly("peaks",
                             [](const DeviceProfile& gpu) {
                               const TimeRates& r = gpu.time;
                               return std::map<std::string, double>{
                                   {"tensor16_tflops", r.tensor16_tflops},
                                   {"tf32_tflops", r.tf32_tflops},
                                   {"f32_tflops", r.f32_tflops},
                                   {"f64_tflops", r.f64_tflops},
                                   {"dram_gbps", r.dram_gbps}};
                             })
      // Where the rates come from that most times depend on.
      .def_property_readonly("time_source",
                             [](const DeviceProfile& gpu) {
                               const bool measured =
                                   gpu.source_of("kernel_us") == NumberSource::kMeasured;
                               return measured ? "measured" : "data sheet";
                             })
      .def_property_readonly("event_us",
                             [](const DeviceProfile& gpu) { return gpu.time.event_us; });
  m.def("op_time", &time_of);
  m.def("collective_ms",
        [](const std::string& op, double bytes, int ranks, int per_node, const DeviceProfile& gpu) {
          return collective_time(collective_kind(op), bytes, ranks, per_node, gpu).us / 1e3;
        });
  m.def("predict_table", [](const std::string& jsonl, const DeviceProfile& gpu) {
    const MeasuredTable table = value_or_throw(read_measured(jsonl));
    std::vector<std::tuple<std::string, double, double>> rows;
    for (const MeasuredCall& call : table.calls) {
      rows.emplace_back(call.family, call.us, predict(call, gpu));
    }
    return rows;
  });
  m.def("fit_table", [](const std::string& jsonl, const DeviceProfile& start) {
    const MeasuredTable table = value_or_throw(read_measured(jsonl));
    return fit_rates(table, start);
  });
  bind_plans(m);
}

}  // namespace peakline::bindings
