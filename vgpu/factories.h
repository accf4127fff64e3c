// The ops that torch would send to CUDA because of their device argument alone.
#pragma once

#include <torch/library.h>

namespace peakline::vgpu {

void add_factories(torch::Library& cuda);

}  // namespace peakline::vgpu
