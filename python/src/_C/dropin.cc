#include "python/src/_C/dropin.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <utility>

#include "capture/dropin/mem_engine.h"
#include "capture/dropin/op_log.h"
#include "python/src/_C/shared_object.h"

namespace peakline::python {
namespace {

namespace py = pybind11;
using dropin::CategoryPlan;
using dropin::DeviceUsage;
using dropin::FakeFacts;
using dropin::MemBook;
using dropin::MemEngine;
using dropin::MemoryLevels;
using dropin::OpLog;

dropin::AskPython ask_python(py::object ask) {
  return [ask = SharedObject(std::move(ask))](const at::Tensor& tensor) {
    py::gil_scoped_acquire gil;
    auto answer = ask.get()(tensor).cast<py::tuple>();
    FakeFacts facts;
    facts.fake = answer[0].cast<bool>();
    if (!answer[1].is_none()) facts.device = answer[1].cast<c10::Device>();
    for (const auto& part : answer[2]) facts.parts.push_back(part.cast<at::Tensor>());
    return facts;
  };
}

// The engine, and the words that its snapshots are written in.
struct PyMemEngine {
  std::shared_ptr<MemEngine> engine;
  py::list keys;     // the categories, in order
  py::object total;  // the key of the sum

  [[nodiscard]] py::dict snapshot(const std::vector<DeviceUsage>& usages) const {
    py::dict result;
    for (const auto& [device, usage] : usages) {
      py::dict by_key;
      for (std::size_t i = 0; i < keys.size(); ++i) by_key[keys[i]] = usage.by_category[i];
      by_key[total] = usage.total;
      result[py::cast(device)] = std::move(by_key);
    }
    return result;
  }
};

PyMemEngine make_engine(py::list keys, py::object total, std::array<int, 4> roles,
                        std::int64_t granularity, py::object ask) {
  if (keys.size() > dropin::kMaxCategories) throw py::value_error("too many memory categories");
  const CategoryPlan plan{roles[0], roles[1], roles[2], roles[3]};
  auto engine = std::make_shared<MemEngine>(plan, granularity, ask_python(std::move(ask)));
  return {std::move(engine), std::move(keys), std::move(total)};
}

c10::Storage storage_of(const py::object& object) {
  if (!torch::isStorage(object.ptr())) throw py::type_error("expected a torch.UntypedStorage");
  return torch::createStorage(object.ptr());
}

py::object held_in(const PyMemEngine& self, const py::object& storage) {
  auto held = self.engine->held(storage_of(storage));
  if (!held) return py::none();
  return py::make_tuple(held->bytes, held->category, held->device);
}

// A hook in C++, so that a gradient is labelled without a word of Python.
unsigned hook_gradient(const PyMemEngine& self, const at::Tensor& parameter, int category) {
  return parameter.register_hook(
      [engine = self.engine, category](const at::Tensor& grad) { engine->label(grad, category); });
}

void bind_bookkeeping(py::class_<PyMemEngine>& engine) {
  engine
      .def("now",
           [](const PyMemEngine& self) {
             return self.snapshot(self.engine->with_book([](MemBook& book) {
               book.drop_dead(/*externals_only=*/true);
               return book.counts.now();
             }));
           })
      .def("drop_dead",
           [](const PyMemEngine& self) {
             self.engine->with_book([](MemBook& book) { book.drop_dead(false); });
           })
      .def("peak",
           [](const PyMemEngine& self) {
             return self.snapshot(
                 self.engine->with_book([](MemBook& book) { return book.counts.peak(); }));
           })
      .def("reset_peak",
           [](const PyMemEngine& self) {
             self.engine->with_book([](MemBook& book) { book.counts.reset_peak(); });
           })
      .def("open_frame",
           [](const PyMemEngine& self) {
             auto [frame, now] = self.engine->with_book([](MemBook& book) {
               book.drop_dead(/*externals_only=*/true);
               return std::pair{book.counts.open_frame(), book.counts.now()};
             });
             return std::pair{frame, self.snapshot(now)};
           })
      .def("frame_peak",
           [](const PyMemEngine& self, int frame) {
             return self.snapshot(self.engine->with_book(
                 [=](MemBook& book) { return book.counts.frame_peak(frame); }));
           })
      .def("close_frame",
           [](const PyMemEngine& self, int frame) {
             return self.snapshot(self.engine->with_book(
                 [=](MemBook& book) { return book.counts.close_frame(frame); }));
           })
      .def("adjust", [](const PyMemEngine& self, c10::Device device, int category,
                        std::int64_t bytes, std::int64_t total) {
        self.engine->with_book(
            [=](MemBook& book) { book.counts.adjust(device, category, bytes, total); });
      });
}

void bind_mem_engine(py::module_& m) {
  py::class_<PyMemEngine> engine(m, "MemEngine");
  engine.def(py::init(&make_engine))
      .def("start", [](const PyMemEngine& self, bool fake) { self.engine->start(fake); })
      .def("stop", [](const PyMemEngine& self) { self.engine->stop(); })
      .def("label", [](const PyMemEngine& self, const at::Tensor& tensor,
                       int category) { return self.engine->label(tensor, category); })
      .def("track", [](const PyMemEngine& self, const at::Tensor& tensor,
                       int category) { self.engine->track(tensor, category); })
      .def("held", &held_in)
      .def("hook_gradient", &hook_gradient)
      .def("unhook_gradient", [](const PyMemEngine&, const at::Tensor& parameter,
                                 unsigned hook) { parameter.remove_hook(hook); })
      .def("gradient_labeller",
           [](const PyMemEngine& self, int category) {
             return py::cpp_function([engine = self.engine, category](const at::Tensor& parameter) {
               engine->label(parameter.grad(), category);
             });
           })
      .def("held_bytes", [](const PyMemEngine& self,
                            const at::Tensor& tensor) { return self.engine->held_bytes(tensor); })
      .def("before_resize",
           [](const PyMemEngine& self, const py::object& storage) {
             auto before = self.engine->before_resize(storage_of(storage));
             return std::pair{before.key, before.category};
           })
      .def("after_resize",
           [](const PyMemEngine& self, const py::object& storage,
              std::pair<dropin::BlockKey, int> before) {
             self.engine->after_resize(storage_of(storage), {before.first, before.second});
           })
      .def("set_block_bytes",
           [](const PyMemEngine& self, dropin::BlockKey address, std::int64_t bytes) {
             self.engine->set_block_bytes(address, bytes);
           })
      .def("note_backward", [](const PyMemEngine& self) { self.engine->note_backward(); })
      .def("category_now", [](const PyMemEngine& self) { return self.engine->category_now(); })
      .def("set_category",
           [](const PyMemEngine& self, int category) { self.engine->forced = category; })
      .def_property(
          "optimizing", [](const PyMemEngine& self) { return self.engine->optimizing.load(); },
          [](const PyMemEngine& self, bool on) { self.engine->optimizing = on; })
      .def_property(
          "recomputing", [](const PyMemEngine& self) { return self.engine->recomputing.load(); },
          [](const PyMemEngine& self, bool on) { self.engine->recomputing = on; });
  bind_bookkeeping(engine);
}

OpLog::ReadLevels read_from_python(py::object read) {
  return [read = SharedObject(std::move(read))] {
    py::gil_scoped_acquire gil;
    auto levels = read.get()().cast<std::array<std::int64_t, 3>>();
    return MemoryLevels{levels[0], levels[1], levels[2]};
  };
}

// `source`: None for the CPU's own blocks, a device type, or a function giving three numbers of
// bytes.
std::shared_ptr<OpLog> make_log(py::object source) {
  if (source.is_none()) return std::make_shared<OpLog>(OpLog::ReadLevels{});
  if (PyCallable_Check(source.ptr())) return std::make_shared<OpLog>(read_from_python(source));
  auto read = dropin::device_levels(c10::Device(source.cast<std::string>()).type());
  if (!read) throw py::value_error("that device has no caching allocator in use");
  return std::make_shared<OpLog>(std::move(read));
}

py::tuple levels_tuple(const MemoryLevels& levels) {
  return py::make_tuple(levels.allocated, levels.active, levels.reserved);
}

py::list take_rows(OpLog& log) {
  py::list rows;
  for (const OpLog::Row& row : log.take()) {
    // As torch writes an overload: aten::add.Tensor is "add.Tensor", without one "add.default".
    std::string name = row.op->name.substr(row.op->name.find("::") + 2);
    name += '.' + (row.op->overload.empty() ? std::string("default") : row.op->overload);
    rows.append(py::make_tuple(row.prefix, name, row.moment, row.levels.allocated,
                               row.levels.active, row.levels.reserved));
  }
  return rows;
}

void bind_op_log(py::module_& m) {
  py::class_<OpLog, std::shared_ptr<OpLog>>(m, "OpLog")
      .def(py::init(&make_log))
      .def("start", &OpLog::start)
      .def("stop", &OpLog::stop)
      .def("set_prefix", &OpLog::set_prefix)
      .def("levels", [](OpLog& self) { return levels_tuple(self.levels()); })
      .def("take", &take_rows);
}

}  // namespace

void bind_dropin(py::module_& m) {
  bind_mem_engine(m);
  bind_op_log(m);
}

}  // namespace peakline::python
