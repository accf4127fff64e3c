// torch's devices as the recording numbers them.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <atomic>
#include <cstdint>

#include <peakline/dictionary.h>

#include "capture/recorder.h"

namespace peakline::capture {

// Looks a device up, or defines it on its first event. Thread-safe. One per recorder.
class Devices {
 public:
  explicit Devices(Recorder& recorder) : recorder_(recorder) {}

  [[nodiscard]] DeviceId cuda(int index) noexcept {
    const std::uint16_t known = cuda_[slot(index)].load(std::memory_order_relaxed);
    return known != 0 ? DeviceId(static_cast<std::uint8_t>(known - 1)) : define_cuda(index);
  }
  [[nodiscard]] DeviceId of(c10::Device device);

 private:
  static constexpr std::size_t kMaxCuda = 64;
  [[nodiscard]] static std::size_t slot(int index) noexcept {
    return index < 0 || static_cast<std::size_t>(index) >= kMaxCuda
               ? kMaxCuda - 1
               : static_cast<std::size_t>(index);
  }
  DeviceId define_cuda(int index) noexcept;

  Recorder& recorder_;
  std::array<std::atomic<std::uint16_t>, kMaxCuda> cuda_{};  // id + 1; 0: not defined yet
};

// The name and memory of a CUDA device, asked from the driver if it is loaded, so that asking
// neither starts CUDA nor needs its headers.
DeviceInfo describe_cuda(int index);

}  // namespace peakline::capture
