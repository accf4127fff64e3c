// torch's kernels that draw random numbers into host tensors, which tell the clock how many.
#pragma once

#include <torch/library.h>

namespace peakline::vgpu {

// Under the CPU's key.
void add_host_random(torch::Library& aten);

}  // namespace peakline::vgpu
