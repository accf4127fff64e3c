// Sees every allocation that torch makes in host memory, on any thread.
#pragma once

#include <c10/core/StorageImpl.h>

#include <peakline/status.h>

namespace peakline::capture {

// Puts an allocator of ours in front of torch's, which does the work. torch's own way of reporting
// host memory costs several times as much (a locked map), is bound to threads, and is the
// profiler's. Data pointers keep their own address as context, which oneDNN relies on.
// Blocks made while it is installed are freed through it for ever: it is never destroyed.
class HostAllocatorObserver {
 public:
  static Status install();
  // torch's allocator is back in its place, unless somebody has put another one there since.
  static void remove();
  // From now on the free of this storage's memory is seen, too. False when it is not torch's
  // memory, for example an array of numpy's.
  static bool watch_free(c10::StorageImpl& storage);
};

}  // namespace peakline::capture
