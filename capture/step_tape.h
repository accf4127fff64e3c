// Ops, autograd nodes and labels of steps that repeat, without watching every one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "capture/live_block.h"
#include "capture/raw_event.h"

namespace peakline::capture {

// What each thread will allocate in a step that is like the one before, and from where. Immutable once
// others see it.
class ExpectedAllocs {
 public:
  // Another part of the program may allocate the same sizes, so some allocations are looked at closer:
  // the first of a thread that has a stack, and one in so many that follow. Each costs a read of the
  // interpreter's frames.
  static constexpr std::size_t kLookedAt = 16;
  struct Stack {
    std::size_t alloc = 0;  // of the thread's in the step
    StackId stack;
  };
  struct Thread {
    std::vector<std::uint64_t> allocs;  // in order, each as pack() says it
    std::vector<Stack> stacks;          // of those that are looked at
    std::size_t with_stacks = 0;
  };

  void add(std::uint16_t thread, std::uint64_t size, std::uint8_t device, StackId stack) {
    if (thread >= threads_.size()) threads_.resize(thread + std::size_t{1});
    Thread& here = threads_[thread];
    const bool looked_at = stack != StackId{} && here.with_stacks++ % kLookedAt == 0;
    if (looked_at) here.stacks.push_back({here.allocs.size(), stack});
    here.allocs.push_back(pack(size, device));
  }
  [[nodiscard]] const Thread& of(std::uint16_t thread) const noexcept {
    static const Thread kNothing;
    return thread < threads_.size() ? threads_[thread] : kNothing;
  }
  static std::uint64_t pack(std::uint64_t size, std::uint8_t device) noexcept {
    return size << 8 | device;
  }

 private:
  std::vector<Thread> threads_;
};

// Being told of every op and of every autograd node costs the program about a microsecond each; being
// told of every allocation costs next to nothing. Training steps repeat, so the ops and nodes of two
// equal steps in a row are kept as a tape, and so is where in the program their blocks come from,
// and which of them are parameters, gradients and optimizer state. While later steps allocate the same sizes in the same modules in the same
// order, all this is read from the tape, torch is not asked for it, and nobody walks over the
// parameters. A few of their stacks are taken nevertheless, since a second loop over the same model may
// allocate all the same. The first difference ends this: they are watched again, until two steps in a row are
// equal.
// This runs behind the program; so that no op is missed but the one at the difference, the program is
// told what allocations to expect, and notices by itself when another one comes.
//
//   watching ──two equal steps──> repeating ──anything different──> watching
//
// What comes out is what would have come with every op watched, but for the times at which ops end
// and nodes begin, which are those of the thread's next event, and for nodes after a thread's last
// allocation. A node's number is its number in the step before, moved on by as much as the modules'
// numbers are. Used by one thread.
class StepTape {
 public:
  // Stop watching ops while allocations are as expected; with null: watch them. What is expected
  // stays alive as long as the tape.
  using Expect = std::function<void(const ExpectedAllocs*)>;

  // Events go to `out`, which outlives this.
  StepTape(RawEventOutput& out, Expect expect) : out_(out), expect_(std::move(expect)) {}

  void on(const RawEvent& raw);
  // Closes the ops that a tape has opened.
  void finish();

  [[nodiscard]] bool repeating() const noexcept { return repeating_; }

 private:
  // A block by the order of its allocation on its thread in this step; 0: from before the step.
  using Ordinal = std::uint32_t;
  // One event of a step: enough to recognise it in the next one, and to tell it again.
  struct Item {
    RawEvent raw;
    Ordinal block = 0;        // kFree, kLabel: which one
    std::uint16_t maker = 0;  // the thread that allocated it
    std::uint8_t age = 0;     // so many steps ago
    [[nodiscard]] bool is(RawKind kind) const noexcept { return raw.kind == kind; }
    // The same in another step: its time, its address and autograd's numbers are no difference.
    bool operator==(const Item& other) const noexcept;
  };
  struct Tape {
    std::vector<Item> before;                     // the step before
    std::vector<Item> now;                        // this one, while watching
    std::size_t next = 0;                         // in `before`, while repeating
    Ordinal allocs = 0;                           // in this step
    std::vector<std::uint64_t> addresses;         // of this step's blocks, by ordinal from 1
    std::vector<std::uint64_t> addresses_before;  // of the step before
    bool in_walk = false;                         // the labels that come are those of a walk
    std::uint32_t open = 0;                       // ops begun and not ended
    std::optional<RawEvent> stack;  // that came for the next allocation, while repeating
    std::uint16_t thread = 0;
  };
  // Labels of blocks of their step and of the one before are taped; older blocks have theirs.
  static constexpr std::uint64_t kOldestLabelled = 1;
  static constexpr std::size_t kLongestTape = std::size_t{1} << 20;
  // What was expected may still be looked at, so it is kept; a program that changes its ways more
  // often is watched for good.
  static constexpr std::size_t kMostRepetitions = 64;

  void watch(const RawEvent& raw);
  void watch_label(const RawEvent& raw);
  void repeat(const RawEvent& raw);
  void repeat_milestone(const RawEvent& raw, Tape& tape);
  void watch_again(const RawEvent& raw, Tape& tape);
  void repeat_free(const RawEvent& raw, Tape& tape);
  void repeat_module(RawEvent raw, const RawEvent& before);
  void end_ops_that_are_over(Tape& tape);
  void end_tape(Tape& tape);
  void play(Tape& tape, std::size_t until, std::uint64_t ticks);
  [[nodiscard]] RawEvent node_now(RawEvent node) const;
  void play_labels(Tape& tape, std::uint64_t ticks);
  void play_label(RawEvent label, const Item& item);
  void start_repeating();
  void stop_repeating(std::uint64_t ticks);
  void end_step(const RawEvent& raw);
  [[nodiscard]] bool steps_are_equal() const;
  [[nodiscard]] bool tapes_are_used_up() const;
  [[nodiscard]] Item item_of(const RawEvent& raw) const;
  void put_alloc(const RawEvent& raw, Tape& tape);
  Tape& tape_of(std::uint16_t thread);

  RawEventOutput& out_;
  Expect expect_;
  std::vector<Tape> tapes_;  // by thread
  // By autograd thread: how far its sequence numbers are beyond those on the tape.
  std::unordered_map<std::uint64_t, std::uint64_t> moved_on_;
  std::vector<std::unique_ptr<ExpectedAllocs>> expected_;
  std::uint64_t step_ = 1;
  std::uint64_t ticks_ = 0;
  bool repeating_ = false;
  bool too_long_ = false;  // this step does not fit a tape
};

}  // namespace peakline::capture
