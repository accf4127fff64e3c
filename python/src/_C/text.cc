// Bindings of what people read and type: sizes, counts, the text of an estimate.
#include <pybind11/pybind11.h>

#include <peakline/counts.h>
#include <peakline/estimate_text.h>
#include <peakline/units.h>

#include "bindings.h"
#include "errors.h"

namespace py = pybind11;

namespace peakline::bindings {

void bind_text(py::module_& m) {
  m.def("parse_size",
        [](const std::string& text) { return value_or_throw(parse_size(text)).raw(); });
  m.def("format_size", [](std::int64_t size) { return format_size(Bytes(size)); });
  m.def(
      "counted",
      [](std::uint64_t number, const std::string& one, const std::string& many) {
        return counted(number, one, many);
      },
      py::arg("number"), py::arg("one"), py::arg("many") = "");
  m.def("estimate_text", [](const std::string& answer, const std::string& what, double seconds) {
    return value_or_throw(estimate_text(answer, what, seconds, Paint(false)));
  });
}

}  // namespace peakline::bindings
