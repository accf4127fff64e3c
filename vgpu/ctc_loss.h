// CTC loss: its shapes follow from lengths that torch reads.
#pragma once

#include <torch/library.h>

namespace peakline::vgpu {

void add_ctc_loss(torch::Library& aten);
// The op that everybody calls with lengths on the GPU; for the keys of autograd, too, above which it
// would be taken apart.
void add_ctc_loss_of_tensors(torch::Library& library);

}  // namespace peakline::vgpu
