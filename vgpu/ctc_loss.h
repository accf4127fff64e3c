// CTC loss: its shapes follow from lengths that torch reads.
#pragma once

#include <torch/library.h>

namespace peakline::vgpu {

void add_ctc_loss(torch::Library& aten);

}  // namespace peakline::vgpu
