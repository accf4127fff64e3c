// Ops that need more than shapes: copying, reading values, storages, views.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace peakline::vgpu {

// Their names are in hand_written().
void add_hand_written(torch::Library& aten);
const std::vector<std::string>& hand_written();

}  // namespace peakline::vgpu
