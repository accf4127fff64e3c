// Sees every allocation that torch makes in host memory, on any thread.
#pragma once

#include <c10/core/StorageImpl.h>

#include <memory>

#include <peakline/status.h>

namespace peakline::capture {

// Puts an allocator of ours in front of torch's, which does the work, and tells the recording and
// listeners. torch's own way of reporting host memory costs several times as much (a locked map), is
// bound to threads, and is the profiler's. Data pointers keep their own address as context, which
// oneDNN relies on. Blocks made while it is installed are freed through it for ever: our allocator is
// never destroyed.
class HostAllocatorObserver {
 public:
  // Needs the GIL, as does the end. Several may exist.
  static Result<std::unique_ptr<HostAllocatorObserver>> install();
  // With the last one torch's allocator is back in its place, unless somebody has put another one
  // there since.
  ~HostAllocatorObserver();
  HostAllocatorObserver(const HostAllocatorObserver&) = delete;
  HostAllocatorObserver& operator=(const HostAllocatorObserver&) = delete;

  // From now on the free of this storage's memory is seen, too, and what it is resized to. False when
  // it is not torch's memory, for example an array of numpy's.
  static bool watch_free(c10::StorageImpl& storage);

 private:
  HostAllocatorObserver() = default;
};

}  // namespace peakline::capture
