#include "kernels/memory_format.h"

#include <array>

namespace peakline::kernels {
namespace {

// c10::is_channels_last_strides_2d and _3d: strides grow in this order, and ambiguous ones count as
// the usual format.
template <class Order>
bool grows_in(const TensorMeta& t, const Order& order) {
  if (t.strides[1] == 0) return false;
  std::int64_t least = 0;
  for (const int d : order) {
    const auto dim = static_cast<std::size_t>(d);
    if (t.sizes[dim] == 0 || t.strides[dim] < least) return false;
    if (d == 0 && least == t.strides[1]) return false;
    least = t.strides[dim];
    if (t.sizes[dim] > 1) least *= t.sizes[dim];
  }
  return true;
}

}  // namespace

bool suggests_channels_last(const TensorMeta& t) {
  if (t.strides.size() != t.sizes.size()) return false;
  if (t.sizes.size() == 4) return grows_in(t, std::array{1, 3, 2, 0});
  if (t.sizes.size() == 5) return grows_in(t, std::array{1, 4, 3, 2, 0});
  return false;
}

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
