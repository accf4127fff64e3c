// Bindings for the drop-in classes.
#pragma once

#include <pybind11/pybind11.h>

namespace peakline::python {

void bind_dropin(pybind11::module_& m);

}  // namespace peakline::python
