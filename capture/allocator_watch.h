// What the trace of CUDA's caching allocator says about one device, and what it leaves open.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "capture/event_queue.h"
#include "capture/raw_event.h"

namespace peakline::capture {

// One entry of the trace, without torch's types.
struct AllocatorEntry {
  enum class Action : std::uint8_t {
    kAlloc,
    kFreeRequested,
    kFreeCompleted,
    kSegmentAlloc,
    kSegmentFree,
    kOutOfMemory,
  };
  Action action = Action::kAlloc;
  std::uint64_t address = 0;
  std::uint64_t size = 0;  // as requested; of a segment: its own
  std::uint32_t stream = 0;
  std::uint8_t device = 0;  // as the recording numbers it
};

// The allocator's own counts.
struct AllocatorCounts {
  std::int64_t allocated = 0;   // bytes, now
  std::int64_t handed_out = 0;  // bytes, in all, since somebody last reset this
  std::int64_t taken_back = 0;  // likewise
  std::int64_t retries = 0;     // times that it gave its cache back and asked the driver again
  std::int64_t flushes = 0;     // times that it gave its cache back, for a retry or when told to
};

// The trace leaves three things open, and the allocator's counts answer them:
//
// - What a block counts for. One that was not worth splitting counts for more than was asked. Such a
//   block is written as large as rounding makes it; what the allocator has handed out in all, then
//   and at its next action, gives its size, even when that action is the block's own free. The size
//   is written before that action, so totals and peaks are exact at every moment.
// - Whether a free is complete. Its completion follows at once, or another entry does, and then the
//   block waits for other streams.
// - Why segments were given back: for a retry, because the program asked for it, or to collect
//   garbage.
//
// on() is called with the allocator's lock held, settle() and finish() without it, from any thread.
class AllocatorWatch {
 public:
  // Where events go, and where the counts come from. Reading these copies a large struct, so it is
  // done only where something is open.
  class Port {
   public:
    virtual AllocatorCounts counts() = 0;
    virtual void push(const RawEvent& event) = 0;
    // `settles`: the block's size is still open, so settle() should follow when the op is over.
    virtual void push_alloc(const RawEvent& event, bool settles) = 0;

   protected:
    ~Port() = default;
  };

  // Begins anew. `counts` are those of this moment; a device that was never used has none.
  // `rounds_plainly` false: a setting rounds sizes in another way than to multiples of 512.
  void start(const AllocatorCounts& counts, bool rounds_plainly);

  void on(const AllocatorEntry& entry, Port& port);

  // Writes an open size now, unless the allocator does something at this moment, which writes it
  // anyway.
  void settle(Port& port);

  // Nothing more comes: writes what the next entry would have shown.
  void finish(Port& port);

 private:
  void on_alloc(const AllocatorEntry& entry, Port& port);
  void on_free(const AllocatorEntry& entry, Port& port);
  void on_free_completed(const AllocatorEntry& entry, Port& port);
  void on_segment(const AllocatorEntry& entry, Port& port);
  void on_out_of_memory(const AllocatorEntry& entry, Port& port);

  [[nodiscard]] std::uint8_t device() const noexcept {
    return device_.load(std::memory_order_relaxed);
  }
  void close_free(Port& port);
  [[nodiscard]] std::optional<std::int64_t> read_counts(Port& port, std::uint64_t requested);
  [[nodiscard]] std::optional<std::int64_t> write_size(const AllocatorCounts& counts, Port& port);
  void write_total(std::optional<std::int64_t> total, Port& port);
  void write_flushes(const AllocatorCounts& counts, std::uint64_t requested, Port& port);
  [[nodiscard]] static std::int64_t resets(const AllocatorCounts& counts) noexcept {
    return counts.allocated - counts.handed_out + counts.taken_back;
  }

  SpinLock busy_;  // nearly never wanted by two
  std::uint64_t actions_ = 0;
  std::uint64_t open_ = 0;  // address of the newest block, while its size is open
  std::int64_t open_at_least_ = 0;
  std::int64_t handed_out_ = 0;  // in all, without the open block
  std::int64_t resets_ = 0;      // differs after the counts were reset
  std::int64_t retries_ = 0;
  std::int64_t flushes_ = 0;
  std::uint64_t freed_ = 0;  // address of the last free, until it is known whether it waits
  bool segments_changed_ = false;
  bool segments_returned_ = false;
  bool rounds_plainly_ = true;
  std::atomic<std::uint8_t> device_{0};  // of the last entry; settle() reads it beside on()
};

}  // namespace peakline::capture
