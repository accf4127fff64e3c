// torch's memory formats: dense strides in one, and copies into one.
#pragma once

#include <cstdint>
#include <vector>

#include <peakline/kernel_memory.h>

namespace peakline::kernels {

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& sizes, bool channels_last);

// torch's suggest_memory_format: whether the strides are in the order of channels last, dense or not.
bool suggests_channels_last(const TensorMeta& tensor);

// Bytes of the copy that .contiguous(format) makes; zero when the tensor lies so already.
std::int64_t copy_to(const TensorMeta& tensor, bool channels_last);

}  // namespace peakline::kernels
