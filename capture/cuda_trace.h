// The CUDA caching allocator's trace of its own actions, where it could be built in.
#pragma once

#include <cstdint>

#include "capture/devices.h"

namespace peakline::capture {

// Comes from all threads, with segments, streams and requested sizes; AllocatorWatch tells what it
// leaves open, and how that is found out.
// torch never lets go of a trace tracker, so one is attached once and listens only between start
// and stop. Without CUDA's headers all of this does nothing.
class CudaTrace {
 public:
  // False where it could not be built in, and beside a CPU build of torch.
  static bool start(Devices& devices);
  // Writes what is still open on a device. Nothing happens there at the same time.
  static void finish(Recorder& recorder, int device);
  static void stop();
  // Attaches the tracker if CUDA is running by now: before that there is nothing to attach to.
  static void attach();

  // How the recording numbers a stream that the driver knows by this handle.
  [[nodiscard]] static std::uint32_t stream_number(std::uint64_t stream);
};

}  // namespace peakline::capture
