#include "capture/recorder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace peakline::capture {
namespace {

// More than a queue without a taker has room for.
constexpr int kMany = 2 * static_cast<int>(EventQueue::kBatchEvents * EventQueue::kBatches);
constexpr unsigned kHangs = 60;  // seconds, after which a child is taken to wait for ever

// Recorders are never destroyed; kept here, they are no leaks.
Recorder* kept(Recorder* recorder) {
  static auto* const kAll = new std::vector<Recorder*>;
  kAll->push_back(recorder);
  return recorder;
}

struct Recording {
  std::shared_ptr<Spool> spool = *Spool::open("");
  Recorder* recorder = kept(*Recorder::start(*spool, {}));

  void marker(const char* text) {
    recorder->push({.id = recorder->words().name(text).raw(), .kind = RawKind::kMarker});
  }
  // The markers in it, once it has been stopped.
  [[nodiscard]] std::vector<std::string> markers() const {
    std::vector<std::string> found;
    auto source = spool->source();
    Result<TraceReader> reader = TraceReader::open(std::move(*source));
    for (auto events = reader->next(); events.ok() && !events->empty(); events = reader->next()) {
      for (const Event& event : *events) {
        if (const auto* marker = std::get_if<Marker>(&event.body)) {
          found.emplace_back(reader->dictionary().name(marker->name));
        }
      }
    }
    return found;
  }
};

// AddressSanitizer's allocator is not made ready for forks: a child that allocates waits for ever when
// another thread was allocating at that moment. So under it the writing thread is idle when a test forks.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kForksAmongIdleThreads = true;
#else
constexpr bool kForksAmongIdleThreads = false;
#endif

void before_fork(Recording& recording) {
  if (kForksAmongIdleThreads) {
    ASSERT_TRUE(recording.recorder->sync().ok());
  }
}

// How a forked child that does `work` ends; 0: well.
int in_child(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kHangs);
    work();
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(Recorder, AForkedChildWritesNothingAndWaitsForNothing) {
  Recording recording;
  recording.marker("parent");
  EXPECT_TRUE(recording.recorder->live());
  before_fork(recording);
  const int status = in_child([&] {
    if (recording.recorder->live()) ::_exit(1);
    for (int i = 0; i < kMany; ++i) recording.marker("child");
    if (!recording.recorder->sync().ok() || !recording.recorder->stop().ok()) ::_exit(2);
  });
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(recording.recorder->stop().ok());
  EXPECT_EQ(recording.markers(), std::vector<std::string>{"parent"});
}

TEST(Recorder, AForkWhileOtherThreadsPushLeavesNoLockHeld) {
  if (kForksAmongIdleThreads) {
    GTEST_SKIP() << "AddressSanitizer's own locks may be held; ThreadSanitizer's build runs this";
  }
  constexpr int kForks = 40;
  Recording recording;
  std::atomic<bool> done{false};
  std::vector<std::thread> pushers;
  for (int i = 0; i < 3; ++i) {
    pushers.emplace_back([&] {
      for (int word = 0; !done; ++word) {
        recording.marker(std::to_string(word % 1000).c_str());
        recording.recorder->info("key", "value");
      }
    });
  }
  for (int i = 0; i < kForks; ++i) {
    EXPECT_EQ(in_child([&] {
                recording.marker("child");
                recording.recorder->info("key", "child");
              }),
              0);
  }
  done = true;
  for (std::thread& pusher : pushers) pusher.join();
  EXPECT_TRUE(recording.recorder->stop().ok());
}

TEST(Recorder, AForkedChildRecordsForItself) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer cannot start threads in a forked child";
#endif
  Recording parent;
  before_fork(parent);
  const int status = in_child([&] {
    Recording own;
    own.marker("own");
    parent.marker("late");
    if (!own.recorder->stop().ok() || own.markers() != std::vector<std::string>{"own"}) ::_exit(1);
  });
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(parent.recorder->stop().ok());
}

TEST(Recorder, APushThatComesTooLateIsNotInTheNextRecording) {
  Recording first;
  ASSERT_TRUE(first.recorder->stop().ok());
  Recording second;
  first.marker("late");
  std::vector<RawEvent> two(2, {.kind = RawKind::kMarker});
  first.recorder->push_all(two);
  second.marker("second");
  ASSERT_TRUE(second.recorder->stop().ok());
  EXPECT_EQ(second.markers(), std::vector<std::string>{"second"});
}

}  // namespace
}  // namespace peakline::capture
