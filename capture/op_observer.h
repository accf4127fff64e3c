// Which op runs on each thread, and which autograd node: seen through torch's RecordFunction.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <span>

#include "capture/recorder.h"

namespace peakline::capture {

// Ops are written down only when they allocate: an op that does not costs two small callbacks and
// leaves nothing in the recording. Made and destroyed by one thread; watches all.
class OpObserver {
 public:
  // `ops` false: only autograd's nodes are watched, which module backwards need.
  explicit OpObserver(bool ops);
  ~OpObserver();
  OpObserver(const OpObserver&) = delete;
  OpObserver& operator=(const OpObserver&) = delete;

  // Ops and nodes are not watched as long as every thread's allocations are as expected; null: they
  // are watched. From any thread; does nothing without an observer.
  static void expect(const ExpectedAllocs* allocs);
  // Whether allocations are as expected at present.
  [[nodiscard]] static bool repeating() noexcept;
  // A step is over, and the next one's allocations are counted from 0.
  static void step_end() noexcept;

 private:
  at::CallbackHandle ops_ = at::INVALID_CALLBACK_HANDLE;
  at::CallbackHandle nodes_ = at::INVALID_CALLBACK_HANDLE;
};

// Writes `event`, an allocation, after the beginnings of the ops around it on this thread.
void push_inside_ops(Recorder& recorder, const RawEvent& event) noexcept;

// `settle(recorder)` is called when the innermost op of this thread ends, if settle_at_op_end() was
// called in it: the size of what it allocated can be known then.
using Settle = void (*)(Recorder&);
void set_settle(Settle settle) noexcept;
void settle_at_op_end() noexcept;

// How many autograd nodes are running on this thread, one inside the other.
[[nodiscard]] std::uint32_t node_depth() noexcept;

}  // namespace peakline::capture
