#include "capture/event_queue.h"

#include <sched.h>

#include <chrono>

namespace peakline::capture {

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
  begin_batch(empty_.back());
  empty_.pop_back();
}

void EventQueue::begin_batch(Batch* batch) noexcept {
  current_ = batch;
  next_ = batch->events_.get();
  end_ = next_ + kBatchEvents;
}

void EventQueue::push_all(std::uint64_t recording, std::span<const RawEvent> events) noexcept {
  lock_.lock();
  if (recording_ == recording) {
    for (const RawEvent& event : events) put(event);
  }
  lock_.unlock();
}

void EventQueue::hand_over() noexcept {
  current_->count_ = static_cast<std::size_t>(next_ - current_->events_.get());
  std::unique_lock guard(mutex_);
  full_.push_back(current_);
  changed_.notify_all();
  if (wait_for_taker(guard, [this] { return !empty_.empty(); })) {
    begin_batch(empty_.back());
    empty_.pop_back();
  } else {
    recording_ = 0;
    std::erase(full_, current_);
    begin_batch(current_);
  }
}

template <class Condition>
bool EventQueue::wait_for_taker(std::unique_lock<std::mutex>& guard, Condition condition) {
  const auto done = [&] { return abandoned() || condition(); };
  std::size_t seen = released_;
  for (int turns = 0; turns < patience_.turns; ++turns) {
    if (changed_.wait_for(guard, patience_.turn, done)) return !abandoned();
    if (seen != released_) turns = 0;  // slow, but it moves
    seen = released_;
  }
  abandoned_.store(true, std::memory_order_release);
  changed_.notify_all();
  return false;
}

void EventQueue::abandon() noexcept {
  abandoned_.store(true, std::memory_order_release);
  // Empty: whoever has looked at the flag and not begun to wait holds it.
  { const std::lock_guard guard(mutex_); }
  changed_.notify_all();
}

bool EventQueue::has_full() {
  const std::lock_guard guard(mutex_);
  return !full_.empty();
}

// For the taker, which must not wait for a pusher that waits for it: such a pusher holds the lock, and
// has handed a batch over before.
void EventQueue::hand_over_begun() {
  while (!lock_.try_lock()) {
    if (has_full()) return;
    sched_yield();
  }
  // While the lock is ours nobody else hands over. None full and none taken: there are empty ones.
  if (has_begun() && !has_full()) hand_over();
  lock_.unlock();
}

const EventQueue::Batch* EventQueue::take(int wait_ms) {
  std::unique_lock guard(mutex_);
  if (full_.empty() && !woken_) {
    changed_.wait_for(guard, std::chrono::milliseconds(wait_ms),
                      [this] { return !full_.empty() || woken_; });
  }
  woken_ = false;
  if (full_.empty()) {
    guard.unlock();
    hand_over_begun();
    guard.lock();
    if (full_.empty()) return nullptr;
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
  ++released_;
  changed_.notify_all();
}

void EventQueue::wake() {
  const std::lock_guard guard(mutex_);
  woken_ = true;
  changed_.notify_all();
}

void EventQueue::open(std::uint64_t recording, Patience patience) {
  const std::lock_guard pushes(lock_);
  const std::lock_guard batches(mutex_);
  begin_batch(current_);
  empty_.clear();
  for (const std::unique_ptr<Batch>& batch : batches_) {
    batch->count_ = 0;
    if (batch.get() != current_) empty_.push_back(batch.get());
  }
  full_.clear();
  taken_ = 0;
  woken_ = false;
  abandoned_.store(false, std::memory_order_release);
  patience_ = patience;
  recording_ = recording;
}

void EventQueue::close() noexcept {
  const std::lock_guard pushes(lock_);
  recording_ = 0;
}

void EventQueue::before_fork() {
  lock_.lock();
  mutex_.lock();
}

void EventQueue::after_fork(bool in_child) {
  if (in_child) recording_ = 0;
  mutex_.unlock();
  lock_.unlock();
}

void EventQueue::wait_until_drained() {
  lock_.lock();
  if (has_begun()) hand_over();
  lock_.unlock();
  std::unique_lock guard(mutex_);
  wait_for_taker(guard, [this] { return full_.empty() && taken_ == 0; });
}

}  // namespace peakline::capture
