// peakline._C.recompute: contexts of selective checkpointing.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <optional>
#include <utility>

#include "python/src/_C/bindings.h"
#include "recompute/contexts.h"
#include "recompute/places.h"

namespace peakline::bindings {
namespace {

namespace py = pybind11;
using namespace peakline::recompute;

// None stands for all calls.
using KeepOfPlan = std::unordered_map<std::string, std::optional<std::vector<std::int64_t>>>;

std::shared_ptr<Rules> make_rules(const KeepOfPlan& plan, std::unordered_set<std::string> never) {
  std::unordered_map<std::string, Calls> keep;
  for (const auto& [name, numbers] : plan) {
    Calls& calls = keep[name];
    calls.all = !numbers.has_value();
    if (numbers) calls.numbers.insert(numbers->begin(), numbers->end());
  }
  return std::make_shared<Rules>(std::move(keep), std::move(never));
}

py::tuple make_contexts(const std::shared_ptr<Rules>& rules) {
  auto results = std::make_shared<Results>();
  return py::make_tuple(std::make_unique<Forward>(rules, results),
                        std::make_unique<Recomputation>(results));
}

py::object as_python(const c10::IValue& value) {
  if (value.isTensor()) return py::cast(value.toTensor());
  if (value.isTensorList()) return py::cast(value.toTensorVector());
  if (value.isInt()) return py::cast(value.toInt());
  if (value.isDouble()) return py::cast(value.toDouble());
  if (value.isBool()) return py::cast(value.toBool());
  if (value.isNone()) return py::none();
  throw py::type_error("a plan keeps a result that is no tensor and no number");
}

// {op: {number of the call: its result}}
py::dict take(Recomputation& context) {
  py::dict by_op;
  for (const Recomputation::Left& left : context.take()) {
    py::list values;
    for (const c10::IValue& value : left.values) values.append(as_python(value));
    const py::object result = values.size() == 1 ? py::object(values[0]) : py::tuple(values);
    if (!by_op.contains(left.op)) by_op[py::str(left.op)] = py::dict();
    by_op[py::str(left.op)][py::int_(left.number)] = result;
  }
  return by_op;
}

// A place and the call that fills it.
struct PlaceOfCall {
  std::shared_ptr<Place> place;
  py::object call;
};

// What was filled in this turn, once; None where it has to be filled.
std::optional<at::Tensor> taken(PlaceOfCall& self, std::int64_t turn) {
  Place& place = *self.place;
  if (!place.tensor.defined() || place.turn != turn) return std::nullopt;
  return std::exchange(place.tensor, {});
}

PlaceOfCall add_place(Places& places, const at::Tensor& tensor, py::object call) {
  return {places.add(tensor), std::move(call)};
}

void leave(Context& context, const py::args&) { context.leave(); }

}  // namespace

void bind_recompute(py::module_& m) {
  py::module_ own = m.def_submodule("recompute", "Selective checkpointing without Python.");
  own.def("available", &available);
  py::class_<Rules, std::shared_ptr<Rules>>(own, "Rules")
      .def(py::init(&make_rules))
      .def("contexts", &make_contexts);
  py::class_<Context>(own, "Context").def("__enter__", &Context::enter).def("__exit__", &leave);
  const py::class_<Forward, Context> forward(own, "Forward");
  py::class_<Recomputation, Context>(own, "Recomputation").def("take", &take);
  py::class_<PlaceOfCall>(own, "Place")
      .def_readonly("call", &PlaceOfCall::call)
      .def("take", &taken);
  py::class_<Places>(own, "Places")
      .def(py::init())
      .def("add", &add_place)
      .def("begin", &Places::begin)
      .def("fill", &Places::fill)
      .def("missing", &Places::missing);
  py::register_local_exception<Enough>(own, "Enough");
  py::register_local_exception<Differs>(own, "Differs", PyExc_RuntimeError);
}

}  // namespace peakline::bindings
