// Which op runs on each thread, and which autograd node: seen through torch's RecordFunction.
//
// There is one pair of callbacks for ops, whoever wants them. The recording learns of an op only when
// it allocates: an op that does not costs two small callbacks and leaves nothing behind. Listeners
// (see listeners.h) are told when one ends.
#pragma once

#include <cstdint>

#include "capture/call_stacks.h"
#include "capture/recorder.h"

namespace peakline::capture {

// The recording's wish to see ops and nodes on all threads. At most one exists.
class OpObserver {
 public:
  // `ops` false: only autograd's nodes are watched, which module backwards need. `origins`: the
  // recording is told which line of the program made which nodes.
  OpObserver(bool ops, bool origins);
  ~OpObserver();
  OpObserver(const OpObserver&) = delete;
  OpObserver& operator=(const OpObserver&) = delete;

  // While paused the recording needs neither. Does nothing and gives false without an observer. From
  // any thread.
  static bool pause(bool on);
};

// A listener's wish to be told when ops end. `outputs`: with what they return.
class OpEnds {
 public:
  explicit OpEnds(bool outputs);
  ~OpEnds();
  OpEnds(const OpEnds&) = delete;
  OpEnds& operator=(const OpEnds&) = delete;

 private:
  bool outputs_;
};

// Writes `event` after the beginnings of the ops around it on this thread, and after `stack` if there
// is one.
void push_after_op_begins(Recorder& recorder, const RawEvent& event,
                          const TakenStack& stack = {}) noexcept;

// `settle(recorder)` is called when the innermost op of this thread ends, if settle_at_op_end() was
// called in it: the size of what it allocated can be known then.
using Settle = void (*)(Recorder&);
void set_settle(Settle settle) noexcept;
void settle_at_op_end() noexcept;

// How many autograd nodes are running on this thread, one inside the other.
[[nodiscard]] std::uint32_t node_depth() noexcept;
// Whether this thread is inside an op that listeners will be told of.
[[nodiscard]] bool inside_told_op() noexcept;

}  // namespace peakline::capture
