// One function per file of bindings.
#pragma once

#include <pybind11/pybind11.h>

namespace peakline::bindings {

void bind_capture(pybind11::module_& m);
void bind_cost(pybind11::module_& m);
void bind_live(pybind11::module_& m);
void bind_recompute(pybind11::module_& m);
void bind_simulate(pybind11::module_& m);
void bind_summary(pybind11::module_& m);
void bind_text(pybind11::module_& m);
void bind_vgpu(pybind11::module_& m);
void bind_vgpu_pools(pybind11::module_& m);

}  // namespace peakline::bindings
