#include "kernels/memory_format.h"

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

std::int64_t copy_to(const TensorMeta& tensor, bool channels_last) {
  if (!tensor.defined) return 0;
  const bool there = channels_last ? tensor.channels_last() : tensor.contiguous();
  return there ? 0 : tensor.bytes().raw();
}

}  // namespace peakline::kernels
