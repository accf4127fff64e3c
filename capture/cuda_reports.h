// What CUDA's allocator reports to the profiler, where its trace (cuda_trace.h) is not to be had.
#pragma once

#include <memory>

#include "capture/devices.h"
#include "capture/listeners.h"
#include "capture/recorder.h"

namespace peakline::capture {

// Writes every allocation in the bytes that the allocator counts, but only those of threads that
// carry it in the profiler's place: the one that listens, and autograd's.
std::shared_ptr<Listener> make_cuda_reports(Recorder& recorder, Devices& devices);

}  // namespace peakline::capture
