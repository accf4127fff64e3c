// Times of ops that no shape has to be found for: they fill a tensor, zero it, or copy one.
#pragma once

#include <ATen/core/Tensor.h>

#include "vgpu/engine.h"

namespace peakline::vgpu {

// Tells the clock that `name` writes `self`, and reads `source` where that is defined. Remembered under
// their layouts, like the times of other ops. `name` is a literal.
void tell_clock_of_write(Engine& engine, const char* name, const at::Tensor& self,
                         const at::Tensor& source = {});

}  // namespace peakline::vgpu
