// Torch's kernels that make host tensors, replaced while a virtual GPU is on: large ones are virtual.
#pragma once

#include <torch/library.h>

namespace peakline::vgpu {

// Under the CPU's key. Small tensors go to torch's own kernels.
void add_host_factories(torch::Library& aten);

// As at::_pin_memory, of any host tensor: the copy is virtual.
at::Tensor pinned_copy(const at::Tensor& self, std::optional<at::Device> device);

// A host tensor has been given another storage: it is virtual when that is.
void match_keys(const at::Tensor& self);

}  // namespace peakline::vgpu
