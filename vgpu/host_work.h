// What a thread computes itself on the host's tensors, until it next tells the clock something.
#pragma once

#include <utility>

namespace peakline::vgpu {

// As with calls of Python functions (python_calls.h): a thread that loads data issues nothing, so nobody
// takes its sum.
class HostWork {
 public:
  static void add(double us) noexcept { own_ += us; }
  [[nodiscard]] static double take() noexcept { return std::exchange(own_, 0.0); }

 private:
  inline static constinit thread_local double own_ = 0;
};

}  // namespace peakline::vgpu
