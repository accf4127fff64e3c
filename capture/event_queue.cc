#include "capture/event_queue.h"

#include <sched.h>

#include <chrono>

#include "capture/clock.h"

namespace peakline::capture {

namespace {
constexpr std::ptrdiff_t kAhead = 4;  // events
}

void SpinLock::wait() noexcept {
  // On a machine with few cores the holder may need this one, so spinning soon gives it away.
  for (int turns = 0; held_.exchange(true, std::memory_order_acquire); ++turns) {
    if (turns > 64) sched_yield();
  }
}

EventQueue::EventQueue() {
  for (std::size_t i = 0; i < kBatches; ++i) {
    batches_.push_back(std::make_unique<Batch>());
    empty_.push_back(batches_.back().get());
  }
  full_.reserve(kBatches);
  current_ = empty_.back();
  empty_.pop_back();
}

void EventQueue::put(const RawEvent& event) noexcept {
  RawEvent& slot = current_->events_[current_->count_];
  slot = event;
  slot.ticks = ticks_now();
  // The batch was last read by the taker's processor; by the next push its lines are here.
  __builtin_prefetch(&slot + kAhead, 1);
  if (++current_->count_ == kBatchEvents) hand_over();
}

void EventQueue::push(RawEvent event) noexcept {
  lock_.lock();
  put(event);
  lock_.unlock();
}

void EventQueue::push_all(std::span<const RawEvent> events) noexcept {
  lock_.lock();
  for (const RawEvent& event : events) put(event);
  lock_.unlock();
}

void EventQueue::hand_over() noexcept {
  std::unique_lock guard(mutex_);
  full_.push_back(current_);
  changed_.notify_all();
  changed_.wait(guard, [this] { return !empty_.empty(); });
  current_ = empty_.back();
  empty_.pop_back();
}

bool EventQueue::steal() {
  // The batch may be full by the time the lock is ours; then a pusher has handed it over already.
  lock_.lock();
  const bool any = current_->count_ > 0;
  if (any) hand_over();
  lock_.unlock();
  return any;
}

const EventQueue::Batch* EventQueue::take(int wait_ms) {
  std::unique_lock guard(mutex_);
  if (full_.empty() && !woken_) {
    changed_.wait_for(guard, std::chrono::milliseconds(wait_ms),
                      [this] { return !full_.empty() || woken_; });
  }
  woken_ = false;
  if (full_.empty()) {
    // Only this thread refills `empty_`, and it holds no batch now, so handing over cannot wait.
    guard.unlock();
    if (!steal()) return nullptr;
    guard.lock();
  }
  Batch* oldest = full_.front();
  full_.erase(full_.begin());
  ++taken_;
  return oldest;
}

void EventQueue::release(const Batch* batch) {
  const std::lock_guard guard(mutex_);
  Batch* mine = const_cast<Batch*>(batch);
  mine->count_ = 0;
  empty_.push_back(mine);
  --taken_;
  changed_.notify_all();
}

void EventQueue::wake() {
  const std::lock_guard guard(mutex_);
  woken_ = true;
  changed_.notify_all();
}

void EventQueue::clear() {
  lock_.lock();
  current_->count_ = 0;
  lock_.unlock();
  const std::lock_guard guard(mutex_);
  for (Batch* batch : full_) {
    batch->count_ = 0;
    empty_.push_back(batch);
  }
  full_.clear();
  woken_ = false;
}

void EventQueue::wait_until_drained() {
  steal();
  std::unique_lock guard(mutex_);
  changed_.wait(guard, [this] { return full_.empty() && taken_ == 0; });
}

}  // namespace peakline::capture
