// Puts the virtual GPU in the places where torch's C++ looks for CUDA, and puts back what was there.
#pragma once

namespace peakline::vgpu {

// Device guard, CUDA hooks, allocator, and the stubs by which attention and RNNs choose their
// kernels. install() and remove() in pairs, by one thread at a time.
void install_hooks();
void remove_hooks();

}  // namespace peakline::vgpu
