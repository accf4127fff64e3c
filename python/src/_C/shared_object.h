// A Python object that C++ holds.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <utility>

namespace peakline::python {

// May be copied and let go on a thread without the GIL; get() needs it.
class SharedObject {
 public:
  explicit SharedObject(pybind11::object object)
      : object_(new pybind11::object(std::move(object)), [](pybind11::object* held) {
          pybind11::gil_scoped_acquire gil;
          delete held;
        }) {}
  [[nodiscard]] const pybind11::object& get() const { return *object_; }

 private:
  std::shared_ptr<pybind11::object> object_;
};

}  // namespace peakline::python
