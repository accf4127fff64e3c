#include "capture/allocator_watch.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "traced_allocator.h"

namespace peakline::capture {
namespace {

using testing::RandomProgram;
using testing::TracedAllocator;
using Action = AllocatorEntry::Action;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// Keeps the books as a recording does: a block counts for what its last event says.
class Books : public AllocatorWatch::Port {
 public:
  AllocatorCounts counts() override {
    ++reads;
    return source();
  }
  void push(const RawEvent& event) override {
    events.push_back(event);
    if (event.kind == RawKind::kResize && blocks.contains(event.address)) {
      add(static_cast<std::int64_t>(event.size) - blocks[event.address]);
      blocks[event.address] = static_cast<std::int64_t>(event.size);
    } else if (event.kind == RawKind::kFree) {
      add(-blocks[event.address]);
      blocks.erase(event.address);
    }
  }
  void push_alloc(const RawEvent& event, bool settles) override {
    events.push_back(event);
    open = settles;
    blocks[event.address] = static_cast<std::int64_t>(event.size);
    add(static_cast<std::int64_t>(event.size));
  }
  [[nodiscard]] std::size_t count(RawKind kind) const {
    return static_cast<std::size_t>(std::ranges::count(events, kind, &RawEvent::kind));
  }

  std::function<AllocatorCounts()> source;
  std::vector<RawEvent> events;
  std::map<std::uint64_t, std::int64_t> blocks;
  std::int64_t total = 0;
  std::int64_t peak = 0;
  std::size_t reads = 0;
  bool open = false;

 private:
  void add(std::int64_t bytes) {
    total += bytes;
    peak = std::max(peak, total);
  }
};

// An allocator, its watch, and the books that come of it.
struct Watched {
  explicit Watched(const std::string& conf = "", Bytes total = 64_GiB) {
    const Result<AllocatorConfig> config = AllocatorConfig::parse(conf);
    DriverOptions driver;
    driver.total = total;
    driver.kept = Bytes{};
    allocator = std::make_unique<TracedAllocator>(
        config.value(), driver, [this](const AllocatorEntry& entry) { watch.on(entry, books); });
    books.source = [this] { return allocator->counts(); };
    watch.start({}, conf.find("round") == std::string::npos);
  }
  void alloc(std::uint64_t handle, std::uint64_t bytes) { allocator->allocate(handle, bytes, 0); }
  void free(std::uint64_t handle, bool waits = false) { allocator->free(handle, waits); }
  // Since this was last asked.
  void expect_same_peak(std::uint64_t seed) {
    watch.settle(books);
    EXPECT_EQ(books.total, true_total()) << "seed " << seed;
    EXPECT_EQ(books.peak, true_peak()) << "seed " << seed;
    books.peak = books.total;
    allocator->forget_peak();
  }
  [[nodiscard]] std::int64_t true_peak() const {
    return allocator->stats().allocated_bytes[0].peak;
  }
  [[nodiscard]] std::int64_t true_total() const {
    return allocator->stats().allocated_bytes[0].current;
  }

  AllocatorWatch watch;
  Books books;
  std::unique_ptr<TracedAllocator> allocator;
};

// A free block of 12 MiB serves a request a bit below it whole.
void leave_a_hole(Watched& run) {
  run.alloc(900, 12 * kMiB);
  run.free(900);
}
constexpr std::uint64_t kJustBelow = 12 * kMiB - 300'000;

TEST(AllocatorWatch, ABlockThatIsFreedNextCountsForAllThatItGot) {
  Watched run;
  leave_a_hole(run);
  run.alloc(1, 3 * kMiB);
  run.books.peak = 0;
  run.alloc(2, kJustBelow);
  run.free(2);
  EXPECT_EQ(run.books.peak, run.true_peak());
}

TEST(AllocatorWatch, AFreeOfAnotherBlockDoesNotHideThePeakBeforeIt) {
  Watched run;
  leave_a_hole(run);
  run.alloc(1, 30 * kMiB);
  run.alloc(2, kJustBelow);
  run.free(1);
  run.alloc(3, 1);
  EXPECT_EQ(run.books.peak, run.true_peak());
  EXPECT_EQ(run.books.total, run.true_total());
}

TEST(AllocatorWatch, SmallBlocksAreCertainAndCostNoReading) {
  Watched run;
  run.alloc(0, 1);  // takes a segment, whose reason is asked for
  run.alloc(1, 1);
  run.books.reads = 0;
  for (std::uint64_t i = 2; i < 50; ++i) run.alloc(i, i * 1000);
  for (std::uint64_t i = 2; i < 50; ++i) run.free(i);
  EXPECT_EQ(run.books.reads, 0U);
  EXPECT_EQ(run.books.total, run.true_total());
}

TEST(AllocatorWatch, ASizeIsKnownWhenTheOpIsOver) {
  Watched run;
  leave_a_hole(run);
  run.alloc(1, kJustBelow);
  EXPECT_TRUE(run.books.open);
  EXPECT_NE(run.books.total, run.true_total());
  run.watch.settle(run.books);
  EXPECT_EQ(run.books.total, run.true_total());
  const std::size_t reads = run.books.reads;
  run.watch.settle(run.books);
  run.free(1);
  EXPECT_EQ(run.books.reads, reads) << "it is known already";
}

TEST(AllocatorWatch, CountsThatTheProgramResetsAreNotMistakenForSizes) {
  Watched run;
  leave_a_hole(run);
  run.alloc(1, 5 * kMiB);
  run.alloc(2, kJustBelow);
  run.allocator->reset_accumulated();
  run.free(1);
  // No size can be told from these counts, so what is allocated is, once the free is written.
  ASSERT_EQ(run.books.count(RawKind::kTotal), 1U);
  const std::size_t last = run.books.events.size() - 1;
  EXPECT_EQ(run.books.events[last].kind, RawKind::kTotal);
  EXPECT_EQ(run.books.events[last].size, static_cast<std::uint64_t>(run.true_total()));
}

TEST(AllocatorWatch, AFreeThatIsCompleteAtOnceIsOneEvent) {
  Watched run;
  run.alloc(1, 1000);
  run.free(1);
  run.alloc(2, 1000);
  EXPECT_EQ(run.books.count(RawKind::kFree), 1U);
  EXPECT_EQ(run.books.count(RawKind::kFreeWaits), 0U);
  EXPECT_EQ(run.books.count(RawKind::kFreeCompleted), 0U);
}

TEST(AllocatorWatch, AFreeThatWaitsWhileOthersAllocateIsCompleteOnlyWhenToldSo) {
  Watched run;
  run.alloc(1, 1000);
  const std::uint64_t address = run.allocator->address(1);
  run.allocator->record_stream(1, 1);
  run.free(1, true);
  run.alloc(2, 1000);
  run.allocator->complete(1);
  run.alloc(3, 1000);
  std::vector<RawKind> kinds;
  for (const RawEvent& event : run.books.events) {
    if (event.address == address) kinds.push_back(event.kind);
  }
  EXPECT_EQ(kinds, (std::vector{RawKind::kSegmentAlloc, RawKind::kAlloc, RawKind::kFree,
                                RawKind::kFreeWaits, RawKind::kFreeCompleted, RawKind::kAlloc}));
}

TEST(AllocatorWatch, SegmentsGivenBackByTheProgramAreAnEmptiedCache) {
  Watched run;
  run.alloc(1, 30 * kMiB);
  run.free(1);
  run.allocator->empty_cache();
  run.alloc(2, 50 * kMiB);
  EXPECT_EQ(run.books.count(RawKind::kEmptyCache), 1U);
  EXPECT_EQ(run.books.count(RawKind::kRetry), 0U);
}

TEST(AllocatorWatch, SegmentsGivenBackToTryAgainAreARetry) {
  Watched run("", 64_MiB);
  run.alloc(1, 40 * kMiB);
  run.free(1);
  run.alloc(2, 50 * kMiB);
  EXPECT_EQ(run.books.count(RawKind::kRetry), 1U);
  EXPECT_EQ(run.books.count(RawKind::kEmptyCache), 0U);
  EXPECT_EQ(run.books.count(RawKind::kOutOfMemory), 0U);
  run.alloc(3, 60 * kMiB);
  EXPECT_EQ(run.books.count(RawKind::kRetry), 2U);
  EXPECT_EQ(run.books.count(RawKind::kOutOfMemory), 1U);
}

TEST(AllocatorWatch, SegmentsGivenBackAsGarbageAreNeither) {
  Watched run("garbage_collection_threshold:0.5");
  run.allocator->set_limit(100 * kMiB);
  for (std::uint64_t i = 0; i < 5; ++i) {
    run.alloc(i, 21 * kMiB + i * 4 * kMiB);
    run.free(i);
  }
  run.alloc(9, 1);
  EXPECT_GT(run.books.count(RawKind::kSegmentFree), 0U);
  EXPECT_EQ(run.books.count(RawKind::kEmptyCache), 0U);
  EXPECT_EQ(run.books.count(RawKind::kRetry),
            static_cast<std::size_t>(run.allocator->stats().num_alloc_retries));
}

TEST(AllocatorWatch, WhatIsOpenAtTheEndIsWrittenThen) {
  Watched run;
  leave_a_hole(run);
  run.alloc(1, kJustBelow);
  run.alloc(2, 30 * kMiB);
  run.free(2);
  run.allocator->empty_cache();
  run.watch.finish(run.books);
  EXPECT_EQ(run.books.total, run.true_total());
  EXPECT_EQ(run.books.count(RawKind::kEmptyCache), 1U);
}

class AllocatorWatchPrograms : public ::testing::TestWithParam<const char*> {};

TEST_P(AllocatorWatchPrograms, EveryPeakRetryAndFailureIsTheAllocatorsOwn) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Watched run(GetParam(), 6_GiB);
    RandomProgram program(*run.allocator, seed, 5 * RandomProgram::kGiB, seed % 2 == 0);
    testing::SplitMix dice(seed);
    for (int i = 0; i < 4000; ++i) {
      program.step();
      if (dice.below(3) == 0) run.watch.settle(run.books);
      if (dice.below(4) == 0) run.allocator->complete(dice.below(4));
      if (i % 10 == 0) run.expect_same_peak(seed);
    }
    run.watch.finish(run.books);
    run.expect_same_peak(seed);
    EXPECT_EQ(run.books.count(RawKind::kRetry),
              static_cast<std::size_t>(run.allocator->stats().num_alloc_retries));
    EXPECT_EQ(run.books.count(RawKind::kOutOfMemory),
              static_cast<std::size_t>(run.allocator->stats().num_ooms));
    EXPECT_EQ(run.books.count(RawKind::kTotal), 0U) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, AllocatorWatchPrograms,
                         ::testing::Values("", "expandable_segments:True", "max_split_size_mb:64",
                                           "roundup_power2_divisions:4",
                                           "garbage_collection_threshold:0.6"));

// An allocator under one lock that may be taken again, as torch's is.
TEST(AllocatorWatch, OpsThatEndWhileOtherThreadsAllocateLoseNoByte) {
  std::recursive_mutex lock;
  Watched run;
  run.books.source = [&] {
    const std::lock_guard guard(lock);
    return run.allocator->counts();
  };
  std::mutex book_lock;
  struct LockedPort : AllocatorWatch::Port {
    LockedPort(Books& wrapped, std::mutex& mutex) : books(wrapped), guarded(mutex) {}
    AllocatorCounts counts() override { return books.source(); }
    void push(const RawEvent& event) override {
      const std::lock_guard guard(guarded);
      books.push(event);
    }
    void push_alloc(const RawEvent& event, bool settles) override {
      const std::lock_guard guard(guarded);
      books.push_alloc(event, settles);
    }
    Books& books;
    std::mutex& guarded;
  } port(run.books, book_lock);
  const Result<AllocatorConfig> config = AllocatorConfig::parse("");
  run.allocator = std::make_unique<TracedAllocator>(
      config.value(), DriverOptions{},
      [&](const AllocatorEntry& entry) { run.watch.on(entry, port); });
  const auto work = [&](std::uint64_t first) {
    testing::SplitMix dice(first + 1);
    for (std::uint64_t i = 0; i < 3000; ++i) {
      {
        const std::lock_guard guard(lock);
        run.allocator->allocate(first, kMiB + dice.below(12 * kMiB), 0);
      }
      if (dice.below(2) == 0) run.watch.settle(port);
      const std::lock_guard guard(lock);
      run.allocator->free(first, false);
    }
  };
  std::thread other(work, 1);
  work(2);
  other.join();
  run.watch.finish(port);
  EXPECT_EQ(run.books.total, run.true_total());
  EXPECT_EQ(run.books.peak, run.true_peak());
}

}  // namespace
}  // namespace peakline::capture
