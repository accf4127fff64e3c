#include "kernels/memory_format.h"

#include <algorithm>

namespace peakline::kernels {

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& sizes,
                                        bool channels_last) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  std::int64_t next = 1;
  if (channels_last && sizes.size() >= 3) {
    strides[1] = 1;
    next = sizes[1];
    for (std::size_t i = sizes.size(); i-- > 2;) {
      strides[i] = next;
      next *= sizes[i];
    }
    strides[0] = next;
    return strides;
  }
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = next;
    next *= sizes[i] > 0 ? sizes[i] : 1;
  }
  return strides;
}

// c10/core/MemoryFormat.h: is_channels_last_strides_2d, and its like for three dimensions.
bool suggests_channels_last(const TensorMeta& tensor) {
  const std::size_t dimensions = tensor.sizes.size();
  if (dimensions < 4 || dimensions > 5 || tensor.strides.size() != dimensions) return false;
  if (tensor.strides[1] == 0) return false;
  std::int64_t least = 0;
  const auto follows = [&](std::size_t d) {
    if (tensor.sizes[d] == 0 || tensor.strides[d] < least) return false;
    // One channel, or one pixel: contiguous where both would do.
    if (d == 0 && least == tensor.strides[1]) return false;
    least = tensor.strides[d] * std::max<std::int64_t>(tensor.sizes[d], 1);
    return true;
  };
  if (!follows(1)) return false;
  for (std::size_t d = dimensions; d-- > 2;) {
    if (!follows(d)) return false;
  }
  return follows(0);
}

std::int64_t copy_to(const TensorMeta& tensor, bool channels_last) {
  if (!tensor.defined) return 0;
  const bool there = channels_last ? tensor.channels_last() : tensor.contiguous();
  return there ? 0 : tensor.bytes().raw();
}

}  // namespace peakline::kernels
