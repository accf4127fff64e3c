// torch's calls and switches in the words of the kernel rules.
#pragma once

#include <ATen/core/Tensor.h>

#include <peakline/kernel_memory.h>

#include "vgpu/call.h"
#include "vgpu/shape_cache.h"

namespace peakline::vgpu {

TensorMeta meta_of(const at::Tensor& tensor);
TensorMeta meta_of(const Layout& layout);
// The switches as they are now.
KernelSwitches kernel_switches();
SdpSwitches sdp_switches();
OpCall op_call(const Call& call, const ShapeEntry& entry, const KernelSwitches& switches);

}  // namespace peakline::vgpu
