// peakline._C: what Python sees of the C++ parts.
#include <pybind11/pybind11.h>

#include "bindings.h"
#include "python/src/_C/dropin.h"
#include "python/src/_C/grad_hooks.h"

namespace py = pybind11;

PYBIND11_MODULE(_C, m) {
  m.attr("version") = PEAKLINE_VERSION;
  peakline::bindings::bind_capture(m);
  peakline::bindings::bind_cost(m);
  peakline::bindings::bind_live(m);
  peakline::bindings::bind_recompute(m);
  peakline::bindings::bind_simulate(m);
  peakline::bindings::bind_summary(m);
  peakline::bindings::bind_text(m);
  peakline::bindings::bind_vgpu(m);
  peakline::python::bind_dropin(m);
  peakline::python::bind_grad_hooks(m);
}
