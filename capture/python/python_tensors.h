// Tensors inside Python's objects. Everything here needs the GIL.
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

#include <vector>

#include "capture/labels.h"

namespace peakline::capture {

// Adds every tensor in a tuple, list or dict, and in those inside it. Runs no Python code, which could
// change them meanwhile.
void collect_tensors(PyObject* object, std::vector<at::Tensor>& tensors, int depth = 4);

// What an optimizer keeps: `state` is its dict from parameters to dicts.
[[nodiscard]] std::vector<StateTensor> collect_state(PyObject* state);

// From here on the parts of tensor subclasses written in Python are known (see tensor_places.h).
void know_python_tensors();

}  // namespace peakline::capture
