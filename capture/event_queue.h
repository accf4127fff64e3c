// From the threads of the program to the one thread that writes the recording.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "capture/raw_event.h"

namespace peakline::capture {

// Held for a few instructions at a time, so waiting for it spins.
class SpinLock {
 public:
  void lock() noexcept {
    if (held_.exchange(true, std::memory_order_acquire)) wait();
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  void wait() noexcept;
  std::atomic<bool> held_{false};
};

// A bounded queue in batches. Any thread pushes, in an order that all agree on; one thread takes.
// When the taker falls behind by all batches, pushing waits for it: memory stays bounded.
// The taker must never need a lock that a pushing thread can hold.
class EventQueue {
 public:
  static constexpr std::size_t kBatchEvents = 4096;
  static constexpr std::size_t kBatches = 16;

  EventQueue();

  void push(RawEvent event) noexcept;
  // Pushes several with no event of another thread between them.
  void push_all(std::span<const RawEvent> events) noexcept;

  // The oldest batch, whole or begun; waits up to `wait_ms` for one. Null when there is none.
  class Batch;
  const Batch* take(int wait_ms);
  // Gives the batch from take() back.
  void release(const Batch* batch);
  // Wakes take() up before its time.
  void wake();
  // Drops what is queued. Nothing may be taken at the time.
  void clear();
  // Waits until everything pushed before this call has been released.
  void wait_until_drained();

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
  void put(const RawEvent& event) noexcept;
  void hand_over() noexcept;  // with lock_ held
  bool steal();

  SpinLock lock_;  // guards current_ and its contents; taken before mutex_
  Batch* current_ = nullptr;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Batch>> batches_;
  std::vector<Batch*> empty_;
  std::vector<Batch*> full_;  // oldest first
  std::size_t taken_ = 0;
  bool woken_ = false;
};

}  // namespace peakline::capture
