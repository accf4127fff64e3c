// Compressed sparse tensors (CSR and its like): what CUDA has code of its own for.
#pragma once

#include <torch/library.h>

#include <set>
#include <string>

namespace peakline::vgpu {

// Gives the names of what it added.
std::set<std::string> add_compressed_ops(torch::Library& aten);

}  // namespace peakline::vgpu
