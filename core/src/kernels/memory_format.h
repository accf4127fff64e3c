// torch's reading of strides: which memory format a tensor suggests, and dense strides in a format.
#pragma once

#include <cstdint>
#include <vector>

#include <peakline/kernel_memory.h>

namespace peakline::kernels {

// Tensor::suggest_memory_format() is channels_last (4 or 5 dimensions).
bool suggests_channels_last(const TensorMeta& tensor);

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& sizes, bool channels_last);

// Bytes of the copy that .contiguous(format) makes; zero when the tensor lies so already.
std::int64_t copy_to(const TensorMeta& tensor, bool channels_last);

}  // namespace peakline::kernels
