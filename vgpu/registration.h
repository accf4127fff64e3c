// Tells torch's dispatcher about the kernels of the virtual GPU.
#pragma once

namespace peakline::vgpu {

// The kernels of virtual tensors: once per process, since only virtual tensors find them. Throws
// when another library has the key already.
void register_kernels();

// The kernels that make tensors because of a device argument: while a virtual GPU is on.
void register_factories();
void unregister_factories();

}  // namespace peakline::vgpu
