// Random number generators of virtual GPUs: nothing is drawn from them, but seeds and states are
// kept as a program expects.
#pragma once

#include <ATen/core/Generator.h>

namespace peakline::vgpu {

at::Generator make_generator(int device);
// The generator that torch.cuda.manual_seed means.
const at::Generator& default_generator(int device);

}  // namespace peakline::vgpu
