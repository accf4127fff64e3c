#include "capture/event_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace peakline::capture {
namespace {

constexpr std::uint64_t kRecording = 1;

struct OpenQueue : EventQueue {
  OpenQueue() { open(kRecording); }
};

TEST(EventQueue, EveryThreadsEventsArriveInItsOrderAndNoneIsLost) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kEvents = 50'000;
  OpenQueue queue;
  std::atomic<bool> done{false};
  std::vector<std::uint64_t> next(kThreads, 0);
  std::uint64_t last_ticks = 0;
  std::thread taker([&] {
    for (;;) {
      const bool last = done.load();
      const EventQueue::Batch* batch = queue.take(last ? 0 : 10);
      if (batch == nullptr && last) return;
      if (batch == nullptr) continue;
      for (const RawEvent& event : batch->events()) {
        EXPECT_EQ(event.address, next[event.id]++);
        last_ticks = event.ticks;
      }
      queue.release(batch);
    }
  });
  std::vector<std::thread> pushers;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    pushers.emplace_back([&queue, thread] {
      for (std::uint64_t i = 0; i < kEvents; ++i)
        queue.push(kRecording, {.address = i, .id = thread});
    });
  }
  for (std::thread& pusher : pushers) pusher.join();
  done = true;
  queue.wake();
  taker.join();
  EXPECT_EQ(next, std::vector<std::uint64_t>(kThreads, kEvents));
  EXPECT_GT(last_ticks, 0U);
}

TEST(EventQueue, EventsPushedTogetherStayTogether) {
  OpenQueue queue;
  std::vector<RawEvent> pair{{.id = 1}, {.id = 2}};
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) queue.push(kRecording, {.id = 9});
  });
  for (int i = 0; i < 1000; ++i) queue.push_all(kRecording, pair);
  other.join();
  const EventQueue::Batch* batch = queue.take(0);
  ASSERT_NE(batch, nullptr);
  std::uint32_t before = 0;
  for (const RawEvent& event : batch->events()) {
    EXPECT_EQ(event.id == 2, before == 1);
    before = event.id;
  }
  queue.release(batch);
}

// However the threads are scheduled: pushers fill all batches while the taker is on its way from
// finding none full to taking the begun one.
TEST(EventQueue, TakerAndPushersNeverWaitForEachOther) {
  constexpr std::uint64_t kThreads = 3;
  constexpr std::uint64_t kEvents = 2'000'000;
  OpenQueue queue;
  std::vector<std::thread> pushers;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    pushers.emplace_back([&queue] {
      for (std::uint64_t i = 0; i < kEvents; ++i) queue.push(kRecording, {.id = 1});
    });
  }
  std::uint64_t taken = 0;
  while (taken < kThreads * kEvents) {
    const EventQueue::Batch* batch = queue.take(0);
    if (batch == nullptr) continue;
    taken += batch->events().size();
    queue.release(batch);
  }
  for (std::thread& pusher : pushers) pusher.join();
  EXPECT_EQ(taken, kThreads * kEvents);
}

TEST(EventQueue, OpenedAgainItIsEmpty) {
  OpenQueue queue;
  EXPECT_EQ(queue.take(0), nullptr);
  queue.push(kRecording, {.id = 1});
  queue.open(kRecording);
  EXPECT_EQ(queue.take(0), nullptr);
}

TEST(EventQueue, EventsOfAnotherRecordingAreNotTaken) {
  OpenQueue queue;
  const std::vector<RawEvent> two{{.id = 7}, {.id = 7}};
  queue.open(kRecording + 1);
  queue.push(kRecording, {.id = 7});
  queue.push_all(kRecording, two);
  EXPECT_EQ(queue.take(0), nullptr);
}

TEST(EventQueue, AClosedQueueGivesWhatItHasAndTakesNothing) {
  OpenQueue queue;
  queue.push(kRecording, {.id = 1});
  queue.close();
  queue.push(kRecording, {.id = 2});
  const EventQueue::Batch* batch = queue.take(0);
  ASSERT_NE(batch, nullptr);
  ASSERT_EQ(batch->events().size(), 1U);
  EXPECT_EQ(batch->events()[0].id, 1U);
  queue.release(batch);
}

}  // namespace
}  // namespace peakline::capture
