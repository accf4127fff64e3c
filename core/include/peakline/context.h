// What the program is doing at this point of the stream: ops and modules per thread, phase, step.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <peakline/diagnostics.h>
#include <peakline/dictionary.h>
#include <peakline/event.h>
#include <peakline/ids.h>

namespace peakline {

struct OpFrame {
  OpId op;
  std::uint64_t serial = 0;  // which call of an op this is, over the whole recording
  bool only_allocates = false;
};

struct ModuleFrame {
  ModuleId module;
  ModulePass pass = ModulePass::kForward;
  std::uint64_t enter_event = 0;
  std::uint32_t recompute = 0;  // serial of the outermost recompute around it; 0 outside of one
  std::uint32_t phases = 0;     // how many phases were open when it was entered
};

// What the program was about when something happened. It decides how lifetimes are read.
enum class Era : std::uint8_t { kForward, kRecompute, kBackward, kOptimizer };

// How often things have begun and ended so far; comparing two of these says what lies between.
struct Progress {
  std::uint32_t steps = 0;
  std::uint32_t backwards_begun = 0;
  std::uint32_t backwards_ended = 0;
  std::uint32_t optimizers_ended = 0;
  std::uint32_t out_of_memory = 0;     // allocations that failed
  std::uint32_t forwards_in_step = 0;  // outermost module forwards begun since the last step
  bool any_module = false;
};

// A named part of the program, inside another one or none.
struct RegionInfo {
  NameId name;
  RegionId around;
};

// Follows the events that say who is running. Not thread-safe.
class Context {
 public:
  Context(const Dictionary& dictionary, Diagnostics& diagnostics);

  void on(ThreadId thread, const OpBegin& begin);
  void on(ThreadId thread, const OpEnd& end);
  void on(ThreadId thread, const ModuleEnter& enter, std::uint64_t event);
  // Closes the innermost matching frame and everything opened above it; the closed frames,
  // innermost first, are valid until the next call.
  const std::vector<ModuleFrame>& on(ThreadId thread, const ModuleLeave& leave);
  void on(ThreadId thread, const PhaseBegin& begin);
  void on(const PhaseEnd& end);
  void on(const StepEnd& end);
  void on(const OutOfMemory& failure);
  void on(ThreadId thread, const CallStack& call);
  void on(ThreadId thread, const RegionBegin& begin);
  void on(ThreadId thread, const RegionEnd& end);
  // The stream is over: what is still open was never left.
  void finish();

  // The op to blame on this thread: the innermost that does more than allocate for another.
  [[nodiscard]] OpFrame op(ThreadId thread) const noexcept;
  // Whether the op call `serial` is still running on this thread.
  [[nodiscard]] bool runs(ThreadId thread, std::uint64_t serial) const noexcept;
  [[nodiscard]] ModuleId module(ThreadId thread) const noexcept;
  // Where the allocation that happens on this thread now was asked for.
  [[nodiscard]] CallStack call(ThreadId thread) const noexcept;
  // The allocation has happened.
  void call_done(ThreadId thread) noexcept;
  // The innermost named part of the program. Threads that name none are in that of the thread that
  // began the backward pass they work for.
  [[nodiscard]] RegionId region(ThreadId thread) const noexcept;
  [[nodiscard]] const RegionInfo& region_info(RegionId id) const noexcept;
  [[nodiscard]] std::size_t region_count() const noexcept { return regions_.size(); }
  // "train / eval": the outermost name first.
  [[nodiscard]] std::string region_path(RegionId id) const;
  // The innermost module call on this thread, by the event that entered it; nothing outside of one.
  [[nodiscard]] std::optional<std::uint64_t> module_call(ThreadId thread) const noexcept;
  // Whether that call still runs on this thread.
  [[nodiscard]] bool runs_module(ThreadId thread, std::uint64_t entered) const noexcept;
  [[nodiscard]] Era era(ThreadId thread) const noexcept;
  // Serial of the recompute that runs on this thread; 0 when none does.
  [[nodiscard]] std::uint32_t recompute(ThreadId thread) const noexcept;
  [[nodiscard]] bool recompute_ended(std::uint32_t serial) const noexcept;
  [[nodiscard]] const Progress& progress() const noexcept { return progress_; }
  [[nodiscard]] std::uint64_t calls(OpId op) const noexcept;
  // A matrix product: its library keeps a workspace from one call to the next.
  [[nodiscard]] bool multiplies_matrices(OpId op) const noexcept;
  // It computes nothing, or there was no op where ops are told: memory that is no op's result.
  [[nodiscard]] bool only_allocates(OpId op) const noexcept;
  // No module is running on any thread.
  [[nodiscard]] bool outside_modules() const noexcept { return open_modules_ == 0; }

 private:
  struct ThreadState {
    std::vector<OpFrame> ops;
    std::vector<ModuleFrame> modules;
    std::vector<RegionId> regions;
    CallStack call;
  };

  ThreadState& state(ThreadId thread);
  [[nodiscard]] const ThreadState* find(ThreadId thread) const noexcept;
  // What an op's name says about it, looked up once.
  enum Trait : std::uint8_t { kKnown = 1, kOnlyAllocates = 2, kMultiplies = 4 };
  [[nodiscard]] std::uint8_t traits(OpId op);
  void begin_backward();
  void close(const ModuleFrame& frame);

  const Dictionary& dictionary_;
  Diagnostics& diagnostics_;
  std::vector<ThreadState> threads_;
  std::vector<ModuleFrame> closed_;
  std::vector<std::uint64_t> calls_;            // by op
  std::vector<std::uint8_t> traits_;            // by op; 0 is not looked up yet
  std::vector<std::uint32_t> recomputing_;      // serials of recomputes that have not ended
  std::array<std::uint32_t, 3> open_phases_{};  // by Phase
  std::vector<Phase> phases_;                   // open, the innermost last
  Progress progress_;
  std::uint64_t op_serial_ = 0;
  std::uint32_t recompute_serial_ = 0;
  std::uint32_t open_modules_ = 0;
  std::uint32_t open_backward_modules_ = 0;
  std::vector<RegionInfo> regions_{RegionInfo{}};
  std::map<std::pair<RegionId, NameId>, RegionId> region_index_;
  ThreadId backward_caller_;
};

}  // namespace peakline
