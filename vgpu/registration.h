// Tells torch's dispatcher about the kernels of the virtual GPU.
#pragma once

#include <string>

namespace peakline::vgpu {

// The kernels of virtual tensors: once per process, since only virtual tensors find them. Throws
// when another library has the key already.
void register_kernels();

// The kernels that make tensors because of a device argument: while a virtual GPU is on.
void register_factories();
void unregister_factories();

// An op of another library ("space::name.overload") whose own code does not run without a GPU: from
// now on its fake or Meta kernel says what comes out, while a virtual GPU is on. Its own code again
// after the other one.
void count_results_alone(const std::string& name);
void run_own_code(const std::string& name);

}  // namespace peakline::vgpu
