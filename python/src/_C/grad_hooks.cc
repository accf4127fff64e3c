#include "python/src/_C/grad_hooks.h"

#include <torch/csrc/utils/pybind.h>

#include <utility>

#include "python/src/_C/shared_object.h"

namespace peakline::python {
namespace {

namespace py = pybind11;

// As tensor.register_hook(hook), for hooks that return nothing, are never taken away, and are too
// many for Python's handles.
void call_on_gradient(const at::Tensor& tensor, py::object hook) {
  tensor.register_hook([hook = SharedObject(std::move(hook))](const at::Tensor& gradient) {
    py::gil_scoped_acquire gil;
    hook.get()(gradient);
  });
}

}  // namespace

void bind_grad_hooks(py::module_& m) { m.def("call_on_gradient", &call_on_gradient); }

}  // namespace peakline::python
