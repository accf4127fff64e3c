// A convolution's arguments, its layout, and who computes it: read and decided here alone.
#pragma once

#include <optional>

#include <peakline/kernel_memory.h>

#include "vgpu/call.h"

namespace peakline::vgpu {

// Nothing when the op is no convolution.
std::optional<Convolution> convolution_of(const Call& call, const KernelSwitches& switches);

// Of a transposed one, what is added to the result's sizes.
std::vector<std::int64_t> output_padding_of(const Call& call);

}  // namespace peakline::vgpu
