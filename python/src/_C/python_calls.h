// Counts the calls of Python functions while a virtual GPU's clock runs.
#pragma once

namespace peakline::bindings {

// With the interpreter's lock held. On twice counts as once.
void count_python_calls(bool on);

}  // namespace peakline::bindings
