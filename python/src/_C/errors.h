// Status values become Python exceptions here, and nowhere else.
#pragma once

#include <pybind11/pybind11.h>

#include <utility>

#include <peakline/status.h>

namespace peakline::bindings {

inline void throw_if_error(const Status& status) {
  if (status.ok()) return;
  PyObject* type = PyExc_RuntimeError;
  if (status.code() == StatusCode::kInvalidInput) type = PyExc_ValueError;
  if (status.code() == StatusCode::kIo) type = PyExc_OSError;
  pybind11::set_error(type, status.message().c_str());
  throw pybind11::error_already_set();
}

template <class T>
T value_or_throw(Result<T> result) {
  throw_if_error(result.status());
  return std::move(*result);
}

}  // namespace peakline::bindings
