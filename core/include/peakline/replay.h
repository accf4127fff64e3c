// Plays a recording's events once, in order, and lets any number of passes watch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <peakline/context.h>
#include <peakline/dictionary.h>
#include <peakline/event.h>
#include <peakline/ledger.h>
#include <peakline/status.h>
#include <peakline/trace.h>

namespace peakline {

// This point of the stream, after the event at `event` has taken effect.
struct Now {
  std::uint64_t event = 0;
  TimeNs time;
  ThreadId thread;
  const Ledger& ledger;
  const Context& context;
  const Dictionary& dictionary;
};

// One question about a recording. Passes know nothing of each other.
// A resize arrives as on_free of the old size, then on_alloc of the new one.
class Pass {
 public:
  virtual ~Pass() = default;
  virtual void on_alloc(const Now&, const Block&) {}
  // `block` is gone from the ledger; `category` is what its whole life says it was.
  virtual void on_free(const Now&, const Block&, CategoryId /*category*/) {}
  virtual void on_module_enter(const Now&, const ModuleFrame&) {}
  virtual void on_module_leave(const Now&, const ModuleFrame&) {}
  virtual void on_step_end(const Now&) {}
  // A segment was taken or returned; on_reserved follows.
  virtual void on_segment(const Now&, const SegmentAlloc&) {}
  virtual void on_segment(const Now&, const SegmentFree&) {}
  virtual void on_reserved(const Now&, DeviceId) {}
  // Everything that the calls above do not cover, except ops, labels and call stacks. When a region
  // ends, `now` is still in it.
  virtual void on_other(const Now&, const Event&) {}
  // The stream is over. What is alive is in `now.ledger`; resolve_category() says what it is.
  virtual void finish(const Now&) {}
};

// What `block` was for. A label decides; without one the block's life does:
//   born and dead inside one op call               Workspace
//   born in a matrix product, kept over two steps  Workspace (cuBLAS keeps its own from call to call)
//   born in forward, kept over two steps           Other
//   born outside of modules by no op or one that
//     only allocates, alive in the next step       Other: a checkpoint that was read
//   born in forward, alive when backward began     Activation, or Input if its step had no forward yet
//   born in forward, alive when memory ran out     the same: forward came no further
//   born in forward, dead before that              Temp inside its module's call or outside of
//                                                  modules, Activation when it outlived that call
//   born in recompute, alive after it              Activation, else Temp
//   born in backward, alive after it               Gradient, else Temp
//   born in the optimizer, alive after it          Optstate, else Temp
// `alive`: the recording ended first. Then what a forward left behind counts as Activation.
CategoryId resolve_category(const Block& block, const Context& context, bool alive);

// Feeds events to ledger, context and passes. Not thread-safe.
class Replay {
 public:
  // `dictionary` outlives the replay, and knows every word before an event uses it.
  explicit Replay(const Dictionary& dictionary);
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // `pass` outlives the replay.
  void add(Pass& pass) { passes_.push_back(&pass); }
  void on(const Event& event);
  void finish();

  [[nodiscard]] const Ledger& ledger() const noexcept { return ledger_; }
  [[nodiscard]] const Context& context() const noexcept { return context_; }
  [[nodiscard]] const Diagnostics& diagnostics() const noexcept { return diagnostics_; }
  [[nodiscard]] std::uint64_t event_count() const noexcept { return count_; }
  [[nodiscard]] TimeNs last_time() const noexcept { return time_; }

 private:
  struct Dispatch;

  [[nodiscard]] Now now(ThreadId thread) const;
  [[nodiscard]] Birth birth(ThreadId thread, std::uint64_t op_call) const;
  void alloc(ThreadId thread, const Alloc& alloc);
  void free(ThreadId thread, const Free& free);
  void resize(ThreadId thread, const Resize& resize);
  void enter(ThreadId thread, const ModuleEnter& enter);
  void leave(ThreadId thread, const ModuleLeave& leave);
  void lost(const Lost& lost);

  const Dictionary& dictionary_;
  Diagnostics diagnostics_;
  Ledger ledger_;
  Context context_;
  std::vector<Pass*> passes_;
  std::uint64_t count_ = 0;
  TimeNs time_;
};

// Replays all of `reader` through `passes`. Returns what could not be true or was missing.
Result<Diagnostics> replay(TraceReader& reader, std::span<Pass* const> passes);

}  // namespace peakline
