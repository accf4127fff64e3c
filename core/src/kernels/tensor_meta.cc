#include <array>

#include <peakline/kernel_memory.h>

namespace peakline {
namespace {

// Strides of a dense tensor whose dimensions lie in memory in this order, outermost first. A
// dimension of size one may have any stride, as in torch.
template <class Order>
bool dense_in(const TensorMeta& tensor, const Order& outermost_first) {
  std::int64_t expected = 1;
  for (auto it = outermost_first.rbegin(); it != outermost_first.rend(); ++it) {
    const auto dim = static_cast<std::size_t>(*it);
    if (tensor.sizes[dim] != 1 && tensor.strides[dim] != expected) return false;
    expected *= tensor.sizes[dim];
  }
  return true;
}

}  // namespace

std::int64_t TensorMeta::numel() const noexcept {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return count;
}

Bytes TensorMeta::bytes() const noexcept { return Bytes(numel() * size_of(dtype)); }

bool TensorMeta::contiguous() const noexcept {
  if (strides.size() != sizes.size()) return true;
  std::int64_t expected = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1 && strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

bool TensorMeta::channels_last() const noexcept {
  if (strides.size() != sizes.size()) return false;
  if (sizes.size() == 4) return dense_in(*this, std::array{0, 2, 3, 1});
  if (sizes.size() == 5) return dense_in(*this, std::array{0, 2, 3, 4, 1});
  return false;
}

}  // namespace peakline
