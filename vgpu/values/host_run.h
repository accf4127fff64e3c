// Computing on the host on behalf of the virtual GPU.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace peakline::vgpu {

// While it lives, ops of this thread go straight to the CPU's kernels, unseen by modes and profilers,
// whatever the program has switched on by now, and use this thread alone: values are small, and
// other threads of a busy machine would be waited for.
class HostRun {
 public:
  HostRun();
  ~HostRun();
  HostRun(const HostRun&) = delete;
  HostRun& operator=(const HostRun&) = delete;

 private:
  c10::impl::ForceDispatchKeyGuard keys_;
  at::DisableRecordFunctionGuard unseen_;
  int threads_before_;
};

}  // namespace peakline::vgpu
