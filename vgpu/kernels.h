// Ops that need more than shapes: making tensors, copying, reading values, storages.
#pragma once

#include <ATen/ATen.h>
#include <torch/library.h>

namespace peakline::vgpu {

// The ops that torch would send to CUDA because of their device argument alone.
void add_factories(torch::Library& cuda);
// The ops of virtual tensors that are written by hand. Their names are in hand_written().
void add_hand_written(torch::Library& aten);
const std::vector<std::string>& hand_written();
void add_ctc_loss(torch::Library& aten);

}  // namespace peakline::vgpu
