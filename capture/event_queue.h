// From the threads of the program to the one thread that writes the recording.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "capture/clock.h"
#include "capture/raw_event.h"

namespace peakline::capture {

// Held for a few instructions at a time, so waiting for it spins.
class SpinLock {
 public:
  void lock() noexcept {
    if (held_.exchange(true, std::memory_order_acquire)) wait();
  }
  bool try_lock() noexcept { return !held_.exchange(true, std::memory_order_acquire); }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  void wait() noexcept;
  std::atomic<bool> held_{false};
};

// Takes the line from other processors' caches, also from those that only read it.
inline void fetch_for_writing(const void* line) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

// A bounded queue in batches. Any thread pushes, in an order that all agree on; one thread takes.
// When the taker falls behind by all batches, pushing waits for it: memory stays bounded. A taker that
// gives no batch back for so long that it must be stuck (a disk that does not answer) is given up, and
// nobody waits for it again.
// What the taker does with a batch must never need a lock that a pushing thread can hold.
//
// This is the one place that decides whether an event may be written: the queue takes events of the
// recording that it is open for. A thread that is late, and a forked child, push into nothing.
class EventQueue {
 public:
  static constexpr std::size_t kBatchEvents = 4096;
  static constexpr std::size_t kBatches = 16;

  // How often, and how long each time, a thread waits for a batch before it gives the taker up. Counted
  // in turns, so that a process that was stopped for a while is not taken for a stuck one.
  struct Patience {
    int turns = 60;
    std::chrono::milliseconds turn{1000};
  };

  EventQueue();

  // Empty, and open for the recording with this number; not 0. Nothing may be taken at the time.
  void open(std::uint64_t recording, Patience patience);
  void open(std::uint64_t recording) { open(recording, Patience{}); }
  // From here on nothing is put into the queue. What is in it can be taken.
  void close() noexcept;

  void push(std::uint64_t recording, const RawEvent& event) noexcept {
    lock_.lock();
    if (recording_ == recording) [[likely]]
      put(event);
    lock_.unlock();
  }
  // Pushes several with no event of another thread between them.
  void push_all(std::uint64_t recording, std::span<const RawEvent> events) noexcept;

  // The oldest batch, whole or begun; waits up to `wait_ms` for one. Null when there is none.
  class Batch;
  const Batch* take(int wait_ms);
  // Gives the batch from take() back.
  void release(const Batch* batch);
  // Wakes take() up before its time.
  void wake();
  // Waits until everything pushed before this call has been released, or the taker is given up.
  void wait_until_drained();
  // There is no taker any more: nothing is put into the queue from here on, and nobody waits. Never
  // waits itself, whoever holds which lock.
  void abandon() noexcept;
  [[nodiscard]] bool abandoned() const noexcept {
    return abandoned_.load(std::memory_order_acquire);
  }

  // Around a fork, by the forking thread: nobody is in the middle of anything meanwhile. In the child
  // the queue is closed.
  void before_fork();
  void after_fork(bool in_child);

  class Batch {
   public:
    [[nodiscard]] std::span<const RawEvent> events() const noexcept {
      return {events_.get(), count_};
    }

   private:
    friend class EventQueue;
    std::unique_ptr<RawEvent[]> events_ = std::make_unique<RawEvent[]>(kBatchEvents);
    std::size_t count_ = 0;
  };

 private:
  static constexpr std::ptrdiff_t kAhead = 4;  // events

  void put(const RawEvent& event) noexcept {
    RawEvent* const slot = next_;
    *slot = event;
    slot->ticks = ticks_now();
    // The batch was last read by the taker's processor; by the next push its lines are here.
    fetch_for_writing(slot + kAhead);
    next_ = slot + 1;
    if (next_ == end_) [[unlikely]]
      hand_over();
  }
  // With lock_ held: the batch is full, or full enough. Waits for an empty one.
  void hand_over() noexcept;
  void begin_batch(Batch* batch) noexcept;
  [[nodiscard]] bool has_begun() const noexcept { return next_ != current_->events_.get(); }
  [[nodiscard]] bool has_full();
  void hand_over_begun();
  // With mutex_ held: whether it became true before patience ended; else the taker is given up.
  template <class Condition>
  bool wait_for_taker(std::unique_lock<std::mutex>& guard, Condition condition);

  // What a push touches, in one cache line. The lock guards the line and the batch's contents; it is
  // taken before mutex_.
  alignas(64) SpinLock lock_;
  std::uint64_t recording_ = 0;  // that it is open for; 0: none
  RawEvent* next_ = nullptr;
  RawEvent* end_ = nullptr;
  Batch* current_ = nullptr;
  Patience patience_;  // it is read only while a push waits, and fills the line

  alignas(64) std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Batch>> batches_;
  std::vector<Batch*> empty_;
  std::vector<Batch*> full_;  // oldest first
  std::size_t taken_ = 0;
  std::size_t released_ = 0;
  bool woken_ = false;
  std::atomic<bool> abandoned_{false};
};

}  // namespace peakline::capture
