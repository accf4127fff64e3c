// Turns module calls and autograd nodes of all threads into module events.
#pragma once

#include <cstdint>
#include <vector>

#include <peakline/event.h>

#include "capture/module_frames.h"
#include "capture/raw_event.h"

namespace peakline::capture {

// Calls `emit` with ModuleEnter, ModuleLeave and the phases of forward. Not thread-safe.
class ModuleTracker {
 public:
  struct Output {
    virtual ~Output() = default;
    virtual void emit(std::uint16_t thread, const EventBody& body) = 0;
  };
  explicit ModuleTracker(Output& output) : output_(output) {}

  void enter(const RawEvent& raw);
  void leave(const RawEvent& raw);
  void node_begin(const RawEvent& raw);
  void backward_end();  // the outermost one
  // Whether a forward runs on this thread.
  [[nodiscard]] bool running(std::uint16_t thread) const noexcept {
    return thread < threads_.size() && !threads_[thread].calls.empty();
  }
  // The recording is over: what is still open is left.
  void finish();

 private:
  struct Call {
    FrameId frame;
    ModulePass pass;
  };
  struct ThreadState {
    std::vector<Call> calls;
    // What each nested backward on this thread is working on, outermost first.
    std::vector<FrameId> backward;
    bool forward_phase = false;
  };

  ThreadState& state(std::uint16_t thread);
  void move(std::uint16_t thread, FrameId from, FrameId to);
  void close_backward(std::uint16_t thread, std::size_t keep);

  Output& output_;
  ModuleFrames frames_;
  std::vector<ThreadState> threads_;
  // Kept between moves, for their memory.
  std::vector<ModuleId> old_chain_;
  std::vector<ModuleId> new_chain_;
};

}  // namespace peakline::capture
