// Long recordings: what memory they take to write and read, and how large they are.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <peakline/trace.h>

#include "synthetic_run.h"

namespace peakline::testing {
namespace {

constexpr std::uint64_t kEvents = 2'000'000;
constexpr std::uint64_t kWarm = 200'000;  // by then every buffer has its size
constexpr std::int64_t kMiB = 1 << 20;

// What this process has in memory.
std::int64_t resident() {
  std::int64_t total = 0;
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> total >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

class LongRecording : public ::testing::Test {
 protected:
  // Fixed sizes, for the model of the run itself must not grow either.
  LongRecording() : run_({.vary_lengths = false}) {
    path_ = ::testing::TempDir() + "peakline_long_" + std::to_string(::getpid()) + ".peak";
  }
  ~LongRecording() override { std::filesystem::remove(path_); }

  // Growth of memory while the recording is written, after its beginning.
  std::int64_t write() {
    TraceWriter writer(open_file_sink(path_).value());
    run_.define_words(writer);
    std::int64_t before = 0;
    while (writer.event_count() < kEvents) {
      for (const Event& event : run_.next_step()) writer.write(event);
      if (before == 0 && writer.event_count() >= kWarm) before = resident();
    }
    written_ = writer.event_count();
    EXPECT_TRUE(writer.close().ok());
    return resident() - before;
  }

  SyntheticRun run_;
  std::string path_;
  std::uint64_t written_ = 0;
};

TEST_F(LongRecording, NeitherWriterNorReaderGrowWithIt) {
  if (!std::filesystem::exists("/proc/self/statm")) GTEST_SKIP() << "this system has no /proc";
  EXPECT_LT(write(), 4 * kMiB);

  Result<TraceReader> reader = TraceReader::open(open_file_source(path_).value());
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  std::uint64_t events = 0;
  std::int64_t before = 0;
  while (true) {
    const Result<std::span<const Event>> batch = reader->next();
    ASSERT_TRUE(batch.ok()) << batch.status().message();
    if (batch->empty()) break;
    events += batch->size();
    if (before == 0 && events >= kWarm) before = resident();
  }
  EXPECT_EQ(events, written_);
  EXPECT_LT(resident() - before, 4 * kMiB);
}

TEST(RecordingSize, ARealisticStreamTakesAFewBytesPerEvent) {
  std::vector<std::byte> bytes;
  SyntheticRun run;
  TraceWriter writer(make_memory_sink(bytes));
  run.define_words(writer);
  while (writer.event_count() < 300'000) {
    for (const Event& event : run.next_step()) writer.write(event);
  }
  ASSERT_TRUE(writer.close().ok());
  EXPECT_LT(static_cast<double>(bytes.size()) / static_cast<double>(writer.event_count()), 3.0);
}

}  // namespace
}  // namespace peakline::testing
