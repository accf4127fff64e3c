// The gate that every allocation passes on its way into the recording.
#pragma once

#include "capture/recorder.h"

namespace peakline::capture {

// Knows what each thread is expected to allocate while steps repeat (see StepTape), and has ops and
// nodes watched again at the first allocation that is another one. From any thread.
class AllocGate {
 public:
  // Ops and nodes are not watched as long as every thread's allocations are these; null: they are.
  // Without an OpObserver nothing is expected.
  static void expect(const ExpectedAllocs* allocs);
  // Whether allocations are as expected at present.
  [[nodiscard]] static bool repeating() noexcept;
  // A step is over, and the next one's allocations are counted from 0.
  static void step_end() noexcept;
};

// Writes `event`, an allocation, after the beginnings of the ops around it on this thread.
void push_inside_ops(Recorder& recorder, const RawEvent& event) noexcept;

}  // namespace peakline::capture
