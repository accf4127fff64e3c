#include "capture/python/python_tensors.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "capture/tensor_places.h"

namespace peakline::capture {
namespace {

// The parts of a wrapper tensor, by torch's own protocol for them. Throws what Python raises.
std::vector<at::Tensor> inner_tensors(const at::Tensor& tensor) {
  std::vector<at::Tensor> inner;
  const py::object wrapper = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
  if (!py::hasattr(wrapper, "__tensor_flatten__")) return inner;
  const py::tuple parts = wrapper.attr("__tensor_flatten__")();
  for (const py::handle name : py::reinterpret_borrow<py::object>(parts[0])) {
    const py::object part = py::getattr(wrapper, name);
    if (THPVariable_Check(part.ptr())) inner.push_back(THPVariable_Unpack(part.ptr()));
  }
  return inner;
}

}  // namespace

void collect_tensors(PyObject* object, std::vector<at::Tensor>& tensors, int depth) {
  if (object == nullptr || depth == 0) return;
  if (THPVariable_Check(object)) return tensors.push_back(THPVariable_Unpack(object));
  if (PyTuple_Check(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
      collect_tensors(PyTuple_GET_ITEM(object, i), tensors, depth - 1);
    }
  } else if (PyList_Check(object)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i) {
      collect_tensors(PyList_GET_ITEM(object, i), tensors, depth - 1);
    }
  } else if (PyDict_Check(object)) {
    Py_ssize_t position = 0;
    PyObject* value = nullptr;
    while (PyDict_Next(object, &position, nullptr, &value) != 0) {
      collect_tensors(value, tensors, depth - 1);
    }
  }
}

std::vector<StateTensor> collect_state(PyObject* state) {
  std::vector<StateTensor> found;
  if (!PyDict_Check(state)) return found;
  Py_ssize_t position = 0;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  while (PyDict_Next(state, &position, &key, &value) != 0) {
    std::vector<at::Tensor> tensors;
    collect_tensors(value, tensors);
    const at::Tensor owner = THPVariable_Check(key) ? THPVariable_Unpack(key) : at::Tensor();
    for (at::Tensor& tensor : tensors) found.push_back({owner, std::move(tensor)});
  }
  return found;
}

void know_python_tensors() { set_wrapper_parts(&inner_tensors); }

}  // namespace peakline::capture
