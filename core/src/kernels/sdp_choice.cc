// Which attention kernel runs. Sources: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp and
// sdp_utils_cpp.h of torch 2.11; checked against torch._fused_sdp_choice on an H200.
#include <array>
#include <cmath>

#include <peakline/kernel_memory.h>

namespace peakline {
namespace {

struct Checker {
  const SdpQuery& q;
  const DeviceProfile& gpu;
  const SdpSwitches& switches;

  [[nodiscard]] std::int64_t head_size() const { return q.query.sizes[3]; }
  [[nodiscard]] std::int64_t value_size() const { return q.value.sizes[3]; }
  [[nodiscard]] std::int64_t queries() const { return q.query.sizes[2]; }
  [[nodiscard]] std::int64_t keys() const { return q.key.sizes[2]; }

  [[nodiscard]] bool four_dimensions() const {
    return q.query.sizes.size() == 4 && q.key.sizes.size() == 4 && q.value.sizes.size() == 4;
  }
  [[nodiscard]] bool same_dtype() const {
    return q.query.dtype == q.key.dtype && q.query.dtype == q.value.dtype;
  }
  [[nodiscard]] bool reduced_precision() const {
    if (!same_dtype()) return false;
    return q.query.dtype == DType::kFloat16 ||
           (q.query.dtype == DType::kBFloat16 && gpu.major >= 8);
  }
  [[nodiscard]] bool not_empty() const { return queries() != 0 && keys() != 0; }

  static bool last_stride_is_one(const TensorMeta& t) {
    return t.strides.empty() || t.strides.back() == 1;
  }
  [[nodiscard]] bool dense_heads(bool ignore_size_one) const {
    const bool ones =
        last_stride_is_one(q.query) && last_stride_is_one(q.key) && last_stride_is_one(q.value);
    const bool mask = !q.mask.defined || last_stride_is_one(q.mask);
    return (ones || (ignore_size_one && head_size() == 1)) && mask;
  }

  // Same batch and heads, or heads in groups where the kernel can do that.
  [[nodiscard]] bool same_heads(bool groups) const {
    const auto& [b, h] = std::pair(q.query.sizes[0], q.query.sizes[1]);
    if (b != q.key.sizes[0] || b != q.value.sizes[0]) return false;
    if (q.enable_gqa && groups) {
      return q.key.sizes[1] == q.value.sizes[1] && q.key.sizes[1] != 0 && h % q.key.sizes[1] == 0;
    }
    return h == q.key.sizes[1] && h == q.value.sizes[1];
  }

  [[nodiscard]] bool mask_shape() const {
    if (!q.mask.defined) return true;
    if (q.mask.requires_grad) return false;
    const auto& s = q.mask.sizes;
    if (s.size() < 2) return false;
    const auto broadcasts = [](std::int64_t size, std::int64_t to) {
      return size == to || size == 1;
    };
    if (!broadcasts(s[s.size() - 2], queries()) || !broadcasts(s.back(), keys())) return false;
    if (s.size() == 2) return true;
    return s.size() == 4 && broadcasts(s[0], q.query.sizes[0]) &&
           broadcasts(s[1], q.query.sizes[1]);
  }

  [[nodiscard]] bool cudnn() const {
    if (!switches.cudnn || !four_dimensions() || switches.deterministic_algorithms) return false;
    if (!reduced_precision() || !mask_shape() || gpu.capability() < 80) return false;
    if (!not_empty() || !dense_heads(true) || !same_heads(true)) return false;
    return cudnn_shapes();
  }
  [[nodiscard]] bool cudnn_shapes() const {
    const bool sm90_or_100 = gpu.capability() == 90 || gpu.major == 10;
    std::int64_t most = 128;
    if (sm90_or_100) most = 256;
    if (head_size() > most || value_size() > most) return false;
    if (head_size() % 8 != 0 || value_size() % 8 != 0) return false;
    if (keys() == 1) return false;
    return !(queries() == 1 && q.dropout != 0);
  }

  [[nodiscard]] bool flash() const {
    if (!switches.flash || !four_dimensions() || q.mask.defined) return false;
    if (head_size() != q.key.sizes[3] || head_size() != value_size() || head_size() > 256) {
      return false;
    }
    if (gpu.capability() < 80) return false;
    const bool small_shared = (gpu.capability() >= 86 && gpu.capability() <= 89) || gpu.major == 12;
    if (q.needs_grad && small_shared && head_size() > 192 &&
        !(q.dropout == 0 && head_size() > 224)) {
      return false;
    }
    if (q.causal && queries() != keys()) return false;
    return reduced_precision() && same_heads(true) && not_empty() && dense_heads(true);
  }

  // Elements that CUTLASS loads at once.
  [[nodiscard]] std::int64_t alignment() const {
    const bool half = is_reduced_float(q.query.dtype);
    const bool tensor_cores = gpu.major >= 8 || (gpu.major >= 7 && half);
    const std::int64_t least = gpu.major >= 8 ? 4 : 1;
    return tensor_cores ? std::max<std::int64_t>(least, half ? 8 : 4) : least;
  }
  [[nodiscard]] bool efficient() const {
    if (!switches.efficient || gpu.capability() < 50 || !four_dimensions()) return false;
    if (head_size() != q.key.sizes[3] || head_size() % alignment() != 0 || head_size() == 0 ||
        value_size() % alignment() != 0 || value_size() == 0) {
      return false;
    }
    // Masks are expanded and padded before the kernel, and it has a gradient for them.
    if (!not_empty() || !dense_heads(false) || !same_heads(false)) return false;
    return same_dtype() && (reduced_precision() || q.query.dtype == DType::kFloat32);
  }

  [[nodiscard]] bool allows(int backend) const {
    switch (static_cast<SdpBackend>(backend)) {
      case SdpBackend::kCudnn:
        return cudnn();
      case SdpBackend::kFlash:
        return flash();
      case SdpBackend::kEfficient:
        return efficient();
      case SdpBackend::kMath:
        return switches.math;
      default:
        return false;
    }
  }
};

// cuDNN goes first where it is fastest; elsewhere it goes last.
std::vector<int> order_for(const DeviceProfile& gpu, const SdpSwitches& switches) {
  if (!switches.priority.empty()) return switches.priority;
  if (gpu.major == 9 || gpu.major == 10) return {3, 1, 2, 0};
  return {1, 2, 0, 3};
}

}  // namespace

SdpBackend sdp_choice(const SdpQuery& query, const DeviceProfile& gpu,
                      const SdpSwitches& switches) {
  const Checker checker{query, gpu, switches};
  for (const int backend : order_for(gpu, switches)) {
    if (checker.allows(backend)) return static_cast<SdpBackend>(backend);
  }
  return SdpBackend::kError;
}

}  // namespace peakline
