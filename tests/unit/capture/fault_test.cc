// Whatever fails while a run is recorded ends the recording and nothing else: every write, every
// allocation, the thread that writes, a disk that does not answer.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include "capture/recorder.h"
#include "failing_memory.h"
#include "read_trace.h"

namespace peakline::capture {
namespace {

using testing::FailingMemory;
using testing::read_trace;
using testing::ReadTrace;

constexpr EventQueue::Patience kShort{.turns = 3, .turn = std::chrono::milliseconds(20)};

// A disk that a test can break.
class BadDisk final : public Sink {
 public:
  explicit BadDisk(std::vector<std::byte>& bytes) : bytes_(bytes) {}
  int fails_at = -1;  // the write with this number fails, and all after it
  int hangs_at = -1;  // never returns
  int dies_at = -1;   // ends the thread that writes
  int writes = 0;
  bool small_ones_fit = false;

  Status write(std::span<const std::byte> bytes) override {
    const int number = writes++;
    if (hangs_at >= 0 && number >= hangs_at) hang();
    if (number == dies_at) ::pthread_exit(nullptr);
    const bool fits = small_ones_fit && bytes.size() < 240;
    if (fails_at >= 0 && number >= fails_at && !fits) return io_error("the disk is full");
    const std::size_t countdown = static_cast<std::size_t>(FailingMemory::countdown.exchange(0));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());  // the disk's memory, not ours
    FailingMemory::countdown = static_cast<std::int64_t>(countdown);
    return {};
  }
  Status flush() override { return {}; }

 private:
  static void hang() {
    for (;;) ::pause();
  }
  std::vector<std::byte>& bytes_;
};

Recorder* kept(Recorder* recorder) {  // recorders are never destroyed; kept here, they are no leaks
  static auto* const kAll = new std::vector<Recorder*>;
  kAll->push_back(recorder);
  return recorder;
}

// What a program's threads do to a recorder, with words made on the way; never throws.
void training_step(Recorder& recorder, int step) {
  undisturbed(recorder, [&] {
    const auto op = recorder.words().op("aten::op_with_a_long_name_" + std::to_string(step));
    recorder.push({.id = op.raw(), .kind = RawKind::kOpBegin});
  });
  for (std::uint64_t block = 1; block <= 40; ++block) {
    recorder.push(
        {.address = block * 512, .size = 512 * block, .extra = 512, .kind = RawKind::kAlloc});
  }
  for (std::uint64_t block = 1; block <= 40; ++block) {
    recorder.free(DeviceId{}, block * 512, 0);
  }
  recorder.op_end();
  recorder.push({.kind = RawKind::kStepEnd});
}

const RunInfo kInfo{{"torch", "2.13.0"}};

// A run of several steps on `disk`; the recorder, or none where it could not begin.
Recorder* record(std::unique_ptr<BadDisk> disk, int steps) {
  WriterOptions options;
  options.chunk_bytes = 600;
  Recorder* recorder = nullptr;
  try {
    Result<Recorder*> started = Recorder::start(std::move(disk), kInfo, options, kShort);
    if (started.ok()) recorder = *started;
  } catch (const std::bad_alloc&) {  // not even enough to say it in words
  }
  for (int step = 0; recorder != nullptr && step < steps; ++step) {
    training_step(*recorder, step);
    if (step % 3 == 0) static_cast<void>(recorder->sync());
  }
  return recorder;
}

// What is on the disk opens, or is so short that it holds no chunk.
void expect_opens(const std::vector<std::byte>& bytes, bool partial) {
  const ReadTrace read = read_trace(bytes);
  if (!read.status.ok()) {
    EXPECT_TRUE(read.events.empty());
    EXPECT_TRUE(read.status.message().find("whole chunk") != std::string::npos ||
                read.status.message().find("empty") != std::string::npos)
        << read.status.message();
    return;
  }
  const bool says_so = read.info.contains("partial") || read.diagnostics.of(Loss::kNoTrailer) > 0 ||
                       read.diagnostics.of(Loss::kUnwrittenEvent) > 0;
  EXPECT_TRUE(!partial || says_so);
}

TEST(Fault, AFailureOfAnyWriteEndsTheRecordingAndNothingElse) {
  std::vector<std::byte> whole;
  auto good = std::make_unique<BadDisk>(whole);
  const BadDisk& counted = *good;
  Recorder* recorder = kept(record(std::move(good), 12));
  ASSERT_NE(recorder, nullptr);
  static_cast<void>(recorder->sync());
  const int writes = counted.writes;
  ASSERT_TRUE(recorder->stop().ok());
  ASSERT_GT(writes, 8);
  for (int failing = 0; failing <= writes; ++failing) {
    for (const bool small_ones_fit : {false, true}) {
      std::vector<std::byte> bytes;
      auto disk = std::make_unique<BadDisk>(bytes);
      disk->fails_at = failing;
      disk->small_ones_fit = small_ones_fit;
      Recorder* run = record(std::move(disk), 12);
      if (run == nullptr) continue;  // it could not even begin, and said so
      const Status ended = kept(run)->stop();
      if (!ended.ok()) {
        EXPECT_EQ(ended.message(), "the disk is full");
      }
      expect_opens(bytes, !ended.ok());
    }
  }
}

TEST(Fault, ARecordingThatFailsTellsWhoListensOnceAndSaysWhyInTheFile) {
  static std::atomic<int> told{0};
  told = 0;
  std::vector<std::byte> bytes;
  auto disk = std::make_unique<BadDisk>(bytes);
  disk->fails_at = 4;
  disk->small_ones_fit = true;
  WriterOptions options;
  options.chunk_bytes = 8000;
  Recorder* recorder = kept(*Recorder::start(std::move(disk), {}, options, kShort));
  recorder->on_fault([] { ++told; });
  g_recorder.store(recorder);
  for (int step = 0; step < 200; ++step) training_step(*recorder, step);
  static_cast<void>(recorder->sync());
  while (recorder->fault().empty()) std::this_thread::yield();
  EXPECT_EQ(current_recorder(), nullptr);
  for (int step = 0; step < 200; ++step) training_step(*recorder, step);
  EXPECT_EQ(recorder->stop().message(), "the disk is full");
  EXPECT_EQ(told, 1);
  const ReadTrace read = read_trace(bytes);
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_NE(read.info.at("partial").find("the disk is full"), std::string::npos);
}

TEST(Fault, AFailureOfAnyAllocationEndsTheRecordingAndNothingElse) {
  int ended_early = 0;
  for (std::int64_t failing = 1;; ++failing) {
    std::vector<std::byte> bytes;
    auto disk = std::make_unique<BadDisk>(bytes);
    FailingMemory::arm(failing, failing % 2 == 0 ? 1 : 50);
    Recorder* run = record(std::move(disk), 4);
    FailingMemory::disarm();
    if (run == nullptr) {
      ASSERT_TRUE(FailingMemory::has_failed);
      continue;
    }
    const Status ended = kept(run)->stop();
    ended_early += ended.ok() ? 0 : 1;
    expect_opens(bytes, !ended.ok());
    if (!FailingMemory::has_failed) {
      EXPECT_TRUE(ended.ok());
      EXPECT_GT(failing, 50);  // there were that many to fail
      break;
    }
  }
  EXPECT_GT(ended_early, 8);
}

TEST(Fault, AWritingThreadThatIsKilledLeavesNobodyWaiting) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not follow a cancelled thread";
#endif
  std::vector<std::byte> bytes;
  auto disk = std::make_unique<BadDisk>(bytes);
  disk->dies_at = 3;
  WriterOptions options;
  options.chunk_bytes = 600;
  Recorder* recorder = kept(*Recorder::start(std::move(disk), {}, options, kShort));
  for (int step = 0; step < 5000; ++step) training_step(*recorder, step);  // more than queues hold
  EXPECT_EQ(recorder->fault(), "the thread that writes the recording ended");
  EXPECT_TRUE(recorder->sync().ok());
  EXPECT_FALSE(recorder->stop().ok());
  expect_opens(bytes, true);
}

TEST(Fault, ADiskThatDoesNotAnswerIsGivenUpAndTheProgramGoesOn) {
  std::vector<std::byte> bytes;
  auto disk = std::make_unique<BadDisk>(bytes);
  disk->hangs_at = 3;
  Recorder* recorder = kept(*Recorder::start(std::move(disk), {}, {}, kShort));
  for (int step = 0; step < 5000; ++step) training_step(*recorder, step);
  EXPECT_NE(recorder->fault().find("could not be written"), std::string_view::npos);
  EXPECT_FALSE(recorder->stop().ok());
}

}  // namespace
}  // namespace peakline::capture
