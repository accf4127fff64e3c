// Collectives over virtual tensors: the process group is asked, nothing is sent.
#pragma once

#include <torch/library.h>

namespace peakline::vgpu {

void add_collectives(torch::Library& c10d);
// The wait of the functional collectives, for the clock.
void add_waits(torch::Library& functional);

}  // namespace peakline::vgpu
