// The CUDA caching allocator's trace of its own actions, where it could be built in.
#pragma once

#include <cstdint>

#include "capture/devices.h"

namespace peakline::capture {

// torch never lets go of a trace tracker, so one is attached once and listens only between start
// and stop. Without CUDA's headers all of this does nothing.
class CudaTrace {
 public:
  [[nodiscard]] static bool available() noexcept;

  // `reported()` says whether the allocation that is being made on this thread will also be
  // reported with the bytes that are counted; then the trace leaves it to the report.
  static void start(Devices& devices, bool (*reported)() noexcept);
  static void stop();
  // Attaches the tracker if CUDA is running by now: before that there is nothing to attach to.
  static void attach();

  // How the recording numbers a stream that the driver knows by this handle.
  [[nodiscard]] static std::uint32_t stream_number(std::uint64_t stream);

  struct Request {
    std::uint64_t bytes = 0;
    std::uint32_t stream = 0;
  };
  // What was asked for when this thread's last allocation was made; `counted` if that is not known.
  [[nodiscard]] static Request take_request(std::uint64_t address, std::uint64_t counted) noexcept;
};

}  // namespace peakline::capture
