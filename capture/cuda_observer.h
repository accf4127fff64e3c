// Sees every allocation of torch's CUDA allocator, in the bytes it counts.
#pragma once

#include <memory>
#include <optional>

#include <peakline/status.h>

#include "capture/devices.h"
#include "capture/listeners.h"
#include "capture/recorder.h"

namespace peakline::capture {

// Listens to the allocator's trace where that can be had (cuda_trace.h): it comes from all threads,
// and is in nobody's way. Elsewhere it takes the allocator's reports to the profiler, which come
// only on threads that carry our observer in the profiler's place: this one, and autograd's. Made
// and destroyed by the same thread.
class CudaObserver {
 public:
  // `trace`: the allocator in use is torch's caching allocator, which has a trace.
  static Result<std::unique_ptr<CudaObserver>> start(Recorder& recorder, Devices& devices,
                                                     bool trace);
  ~CudaObserver();
  CudaObserver(const CudaObserver&) = delete;
  CudaObserver& operator=(const CudaObserver&) = delete;

 private:
  CudaObserver() = default;
  std::optional<Listening> reports_;  // where there is no trace
};

}  // namespace peakline::capture
