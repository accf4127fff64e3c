// Gradient hooks for module boundaries.
#pragma once

#include <pybind11/pybind11.h>

namespace peakline::python {

void bind_grad_hooks(pybind11::module_& m);

}  // namespace peakline::python
