// Bindings of capture/: a session of tracking.
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/utils/pybind.h>

#include <peakline/category.h>

#include "bindings.h"
#include "capture/host_allocator.h"
#include "capture/python/python_session.h"
#include "capture/spool.h"
#include "errors.h"

namespace peakline::bindings {
namespace {

using Session = capture::PythonSession;
using capture::Spool;

// Tracking must never disturb the run: what goes wrong in Python while a module is being named is
// reported as unraisable, and the module stays without a name.
capture::ModuleCalls::Discover make_discover(py::function function) {
  auto held = std::make_shared<py::function>(std::move(function));
  return [held](PyObject* module, ModuleId around) {
    try {
      (*held)(py::handle(module), around.raw());
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("peakline's module discovery");
    }
  };
}

std::unique_ptr<Session> start(const std::shared_ptr<Spool>& spool, py::handle module_type,
                               py::function discover, bool ops, bool cuda, bool cuda_trace,
                               bool repeats, std::int64_t max_size, const RunInfo& info,
                               std::optional<std::uint64_t> stacks_from, bool source,
                               std::vector<std::string> library, std::vector<std::string> left_out,
                               bool cpp, bool launched) {
  capture::StackOptions stacks{stacks_from.value_or(capture::StackOptions::kNever),
                               source,
                               std::move(library),
                               std::move(left_out),
                               cpp,
                               launched};
  return value_or_throw(Session::start(
      *spool, {ops, cuda, cuda_trace, repeats, max_size, info, std::move(stacks)},
      reinterpret_cast<PyTypeObject*>(module_type.ptr()), make_discover(std::move(discover))));
}

// Who is told of a fault. Faults arise on threads that must not touch Python, so the interpreter is asked
// to call back on its main thread, as soon as that is between two instructions.
py::object& fault_listener() {
  static auto* const kListener = new py::object;
  return *kListener;
}

int tell_of_fault(void*) {
  const py::object listener = fault_listener();
  if (!listener) return 0;
  try {
    listener();
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("peakline");
  }
  return 0;
}

void listen_to_faults(Session& session, py::object listener) {
  fault_listener() = std::move(listener);
  session.on_fault([] { static_cast<void>(Py_AddPendingCall(&tell_of_fault, nullptr)); });
}

void stop(Session& session) {
  const Status status = session.stop();
  fault_listener() = {};  // whoever stops asks for faults itself
  throw_if_error(status);
}

void bind_spool(py::module_& m) {
  py::class_<Spool, std::shared_ptr<Spool>>(m, "Spool")
      .def_static("open", [](const std::string& path) { return value_or_throw(Spool::open(path)); })
      .def_static(
          "open_existing",
          [](const std::string& path) { return value_or_throw(Spool::open_existing(path)); })
      .def("copy_to",
           [](const Spool& self, const std::string& path) { throw_if_error(self.copy_to(path)); });
}

void bind_baseline(py::class_<Session>& session) {
  session.def("block", &Session::block)
      .def("segment", &Session::segment)
      .def("foreign", &Session::foreign)
      .def("total", &Session::total)
      .def("adopt_all", [](Session& self) { self.labels().adopt_all(); })
      .def("adopt_state", [](Session& self, py::handle state) { self.adopt_state(state.ptr()); });
}

void bind_labels(py::class_<Session>& session) {
  session
      .def("add_module",
           [](Session& self, py::handle module, const std::string& path, const std::string& type,
              std::uint32_t parent) {
             return self.add_module(module.ptr(), path, type, ModuleId(parent)).raw();
           })
      .def("watch_type",
           [](Session& self, py::type type) {
             self.watch_type(reinterpret_cast<PyTypeObject*>(type.ptr()));
           })
      .def("find_module",
           [](Session& self, py::handle module) { return self.find_module(module.ptr()).raw(); })
      .def("add_tensor",
           [](Session& self, const at::Tensor& tensor, std::uint8_t category, std::uint32_t module,
              const std::string& name) {
             self.add_tensor(tensor, CategoryId(category), ModuleId(module), name);
           })
      .def("running_module", [](Session& self) { return self.running_module().raw(); })
      .def("owned_by",
           [](Session& self, const at::Tensor& tensor, std::uint32_t module,
              const std::string& name) { self.owned_by(tensor, ModuleId(module), name); })
      .def("addresses",
           [](Session& self, const at::Tensor& tensor) { return self.addresses(tensor); })
      .def("knows_tensor",
           [](Session& self, const at::Tensor& tensor) { return self.labels().knows(tensor); })
      .def("label_added", [](Session& self) { self.labels().label_added(); })
      .def("label_alive", [](Session& self) { self.labels().label_alive(); })
      .def("label_alive_in_step", [](Session& self) { self.labels().label_alive_in_step(); })
      .def("label_state", [](Session& self, py::handle state) { self.label_state(state.ptr()); })
      .def("fake_tensor", &Session::fake_tensor);
}

}  // namespace

void bind_capture(py::module_& m) {
  bind_spool(m);
  py::class_<Session> session(m, "Session");
  session.def(py::init(&start))
      .def("watch", [](Session& self) { throw_if_error(self.watch()); })
      .def("stop", &stop)
      .def("fail", [](Session& self, const std::string& why) { self.fail(why); })
      .def_property_readonly("fault", [](Session& self) { return std::string(self.fault()); })
      .def("on_fault", &listen_to_faults)
      .def("sync", [](Session& self) { throw_if_error(self.sync()); })
      .def("cuda_started", &Session::cuda_started)
      .def("phase", [](Session& self, int phase,
                       bool begins) { self.phase(static_cast<Phase>(phase), begins); })
      .def("step_end", &Session::step_end)
      .def("region_begin", &Session::region_begin)
      .def("region_end", &Session::region_end)
      .def("marker", &Session::marker)
      .def("info", &Session::info)
      // Not by its address: it is a base's and noexcept, and pybind11 before 3.0.4 (torch 2.11) then wants the base.
      .def_property_readonly("recording", [](const Session& self) { return self.recording(); })
      .def_property_readonly("repeating",
                             [](const Session&) { return capture::AllocGate::repeating(); });
  bind_baseline(session);
  bind_labels(session);

  m.def("is_library_file", [](const std::string& file, std::vector<std::string> library) {
    return capture::is_library_file({.library = std::move(library)}, file);
  });
  m.def("watch_host_storage", [](const py::object& storage) {
    if (torch::isStorage(storage.ptr())) {
      capture::HostAllocatorObserver::watch_free(
          *torch::createStorage(storage.ptr()).unsafeGetStorageImpl());
    }
  });
  m.attr("CATEGORY_PARAMETER") = category::kParameter.raw();
  m.attr("CATEGORY_COMM") = category::kComm.raw();
  m.attr("CATEGORY_BUFFER") = category::kBuffer.raw();
  m.attr("PHASE_FORWARD") = static_cast<int>(Phase::kForward);
  m.attr("PHASE_BACKWARD") = static_cast<int>(Phase::kBackward);
  m.attr("PHASE_OPTIMIZER") = static_cast<int>(Phase::kOptimizer);
}

}  // namespace peakline::bindings
