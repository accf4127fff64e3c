// Sees every allocation of torch's CUDA caching allocator, in the bytes it counts.
#pragma once

#include <memory>

#include <peakline/status.h>

#include "capture/devices.h"
#include "capture/recorder.h"

namespace peakline::capture {

// Two views of the allocator make one:
//   its reports to the profiler, which say exactly what is counted, but only on threads that carry
//   our observer in the profiler's place: this one, and autograd's;
//   its trace, which comes from all threads and adds segments, streams and requested sizes, but not
//   what is counted. It needs CUDA's headers when peakline is built (has_trace()).
// Where only the trace is seen, the block is written as large as it should be, and corrected by the
// allocator's own total before anything else happens on the device.
// Made and destroyed by the same thread.
class CudaObserver {
 public:
  static Result<std::unique_ptr<CudaObserver>> start(Recorder& recorder, Devices& devices);
  ~CudaObserver();
  CudaObserver(const CudaObserver&) = delete;
  CudaObserver& operator=(const CudaObserver&) = delete;

  [[nodiscard]] static bool has_trace() noexcept;
  // The profiler's place on this thread is taken by somebody else.
  [[nodiscard]] static bool profiler_is_active() noexcept;

 private:
  CudaObserver() = default;
  bool in_slot_ = false;
};

}  // namespace peakline::capture
