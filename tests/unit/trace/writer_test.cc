// What the writer promises: bounded memory, survival of kills, errors that stick.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>

#include "random_events.h"
#include "read_trace.h"
#include "synthetic_run.h"
#include "trace_builder.h"
#include "trace_bytes.h"

namespace peakline::testing {
namespace {

const Event kStep{TimeNs(5), ThreadId(0), StepEnd{}};

// Takes so many bytes and then says that the disk is full; little things still find a place.
class SmallDisk final : public Sink {
 public:
  SmallDisk(std::vector<std::byte>& bytes, std::size_t room) : bytes_(bytes), room_(room) {}
  Status write(std::span<const std::byte> bytes) override {
    if (room_ == 0) return io_error("the disk is full");
    if (bytes_.size() + bytes.size() > room_ + (bytes.size() < 64 ? 64 : 0))
      return io_error("the disk is full");
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return {};
  }
  Status flush() override { return {}; }

 private:
  std::vector<std::byte>& bytes_;
  std::size_t room_;
};

class TempFile {
 public:
  TempFile() {
    const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
    path_ = ::testing::TempDir() + "peakline_" + test.name() + "_" + std::to_string(::getpid());
  }
  ~TempFile() { std::filesystem::remove(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(TraceWriter, AskingAgainForAWordGivesTheSameIdAndWritesNothing) {
  std::vector<std::byte> once;
  std::vector<std::byte> often;
  for (auto* bytes : {&once, &often}) {
    TraceWriter writer(make_memory_sink(*bytes));
    for (int i = 0; i < (bytes == &once ? 1 : 100); ++i) {
      EXPECT_EQ(writer.op("aten::mm"), OpId(1));
      EXPECT_EQ(writer.name("weight"), NameId(1));
      EXPECT_EQ(writer.module("Net", "Net", ModuleId{}), ModuleId(1));
      EXPECT_EQ(writer.device({"cuda:0", "", Bytes{}}), DeviceId(0));
      EXPECT_EQ(writer.thread("main"), ThreadId(0));
      EXPECT_EQ(writer.category("Cache", category::kOther), CategoryId(17));
      EXPECT_EQ(writer.category("Parameter", category::kParameter), category::kParameter);
    }
    EXPECT_TRUE(writer.close().ok());
  }
  EXPECT_EQ(once, often);
}

TEST(TraceWriter, ARunKilledAfterAFlushKeepsItsEvents) {
  std::vector<std::byte> bytes;
  TraceWriter writer(make_memory_sink(bytes), {{"torch", "2.13.0"}});
  writer.op("aten::mm");
  for (int i = 0; i < 10; ++i) writer.write(kStep);
  ASSERT_TRUE(writer.flush().ok());
  writer.write(kStep);
  const ReadTrace read = read_trace(bytes);  // as the file is at this moment
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_EQ(read.events.size(), 10u);
  EXPECT_EQ(read.dictionary.op(OpId(1)), "aten::mm");
  EXPECT_EQ(read.diagnostics.of(Loss::kNoTrailer), 1u);
  EXPECT_EQ(read.diagnostics.of(Loss::kTruncatedTail), 0u);
}

TEST(TraceWriter, AFileOfAKilledProcessOpens) {
  const TempFile file;
  const pid_t child = ::fork();
  if (child == 0) {
    Result<std::unique_ptr<Sink>> sink = open_file_sink(file.path());
    TraceWriter writer(std::move(*sink), {}, {.chunk_bytes = 1000});
    for (int i = 0; i < 10'000; ++i) writer.write(kStep);
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const ReadTrace read = read_trace(open_file_source(file.path()).value());
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_GT(read.events.size(), 8000u);
  EXPECT_EQ(read.diagnostics.of(Loss::kNoTrailer), 1u);
}

TEST(TraceWriter, ANotYetWrittenRunHoldsNoWholeChunk) {
  std::vector<std::byte> bytes;
  TraceWriter writer(make_memory_sink(bytes), {{"torch", "2.13.0"}});
  writer.write(kStep);
  const ReadTrace read = read_trace(bytes);
  EXPECT_EQ(read.status.code(), StatusCode::kInvalidInput);
  EXPECT_NE(read.status.message().find("holds no whole chunk"), std::string::npos);
}

TEST(TraceWriter, ErrorsStickAndTheTrailerSaysWhatIsMissing) {
  std::vector<std::byte> bytes;
  TraceWriter writer(std::make_unique<SmallDisk>(bytes, 5000), {}, {.chunk_bytes = 1000});
  SyntheticRun run;
  run.define_words(writer);
  std::uint64_t given = 0;
  for (const Event& event : run.next_step()) {
    writer.write(event);
    ++given;
  }
  EXPECT_EQ(writer.status().message(), "the disk is full");
  EXPECT_EQ(writer.event_count(), given);
  EXPECT_EQ(writer.flush().message(), "the disk is full");
  EXPECT_EQ(writer.close().message(), "the disk is full");
  EXPECT_EQ(writer.close().message(), "the disk is full");

  const ReadTrace read = read_trace(bytes);
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_GT(read.events.size(), 0u);
  EXPECT_EQ(read.events.size() + read.diagnostics.of(Loss::kUnwrittenEvent), given);
  EXPECT_EQ(read.diagnostics.of(Loss::kNoTrailer), 0u);
}

TEST(TraceWriter, ASinkThatFailsFromTheStartIsKnownFromTheStart) {
  std::vector<std::byte> bytes;
  TraceWriter writer(std::make_unique<SmallDisk>(bytes, 0));
  EXPECT_FALSE(writer.status().ok());
  writer.write(kStep);
  EXPECT_FALSE(writer.close().ok());
  EXPECT_TRUE(bytes.empty());
}

TEST(TraceWriter, NothingIsWrittenAfterClose) {
  std::vector<std::byte> bytes;
  TraceWriter writer(make_memory_sink(bytes), {}, {.chunk_bytes = 1});
  writer.write(kStep);
  ASSERT_TRUE(writer.close().ok());
  const std::size_t size = bytes.size();
  writer.write(kStep);
  writer.op("late");
  writer.info("late", "fact");
  EXPECT_TRUE(writer.flush().ok());
  EXPECT_TRUE(writer.close().ok());
  EXPECT_EQ(bytes.size(), size);
  EXPECT_EQ(writer.event_count(), 1u);
}

TEST(TraceWriter, MovesAndClosesWhenItIsDestroyed) {
  std::vector<std::byte> first;
  std::vector<std::byte> second;
  {
    TraceWriter writer(make_memory_sink(first));
    writer.write(kStep);
    TraceWriter moved(std::move(writer));
    moved.write(kStep);
    moved = TraceWriter(make_memory_sink(second));  // closes the first
    EXPECT_EQ(read_trace(first).events.size(), 2u);
    moved.write(kStep);
  }
  for (const auto& bytes : {first, second}) {
    const ReadTrace read = read_trace(bytes);
    EXPECT_TRUE(read.status.ok()) << read.status.message();
    EXPECT_TRUE(read.diagnostics.empty());
  }
}

TEST(TraceWriter, FactsLearnedLaterReplaceEarlierOnes) {
  std::vector<std::byte> bytes;
  TraceWriter writer(make_memory_sink(bytes), {{"steps", "0"}, {"torch", "2.13.0"}});
  writer.write(kStep);
  writer.info("steps", "1");
  writer.info("note", "");
  ASSERT_TRUE(writer.close().ok());
  EXPECT_EQ(read_trace(bytes).info, (RunInfo{{"note", ""}, {"steps", "1"}, {"torch", "2.13.0"}}));
}

TEST(TraceWriter, AFactSetAgainAndAgainNeitherFillsMemoryNorTheLimit) {
  std::vector<std::byte> bytes;
  TraceWriter writer(make_memory_sink(bytes));
  const std::string long_text(1000, 'x');
  for (int i = 0; i < 40'000; ++i) writer.info("progress", long_text + std::to_string(i));
  ASSERT_TRUE(writer.close().ok());
  const ReadTrace read = read_trace(bytes);
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_EQ(read.info.at("progress"), long_text + "39999");
}

TEST(TraceWriter, WordsAreCutToWhatReadersTakeBetweenCharacters) {
  std::vector<std::byte> bytes;
  TraceWriter writer(make_memory_sink(bytes));
  std::string text = "x";
  while (text.size() < 100'000) text += "\u00e9";
  const NameId name = writer.name(text);
  writer.info("key", text);
  EXPECT_EQ(writer.name(text), name);
  ASSERT_TRUE(writer.close().ok());
  const ReadTrace read = read_trace(bytes);
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_EQ(read.dictionary.name(name), text.substr(0, trace::kMaxTextBytes - 1));
  EXPECT_EQ(read.info.at("key").size(), trace::kMaxTextBytes - 1);
}

TEST(TraceWriter, WordsBeyondTheLimitAreCountedAndTheRecordingStillReads) {
  std::vector<std::byte> bytes;
  TraceWriter writer(make_memory_sink(bytes));
  const std::string long_text(trace::kMaxTextBytes - 10, 'x');
  const std::size_t fitting = Dictionary::kMaxTextBytes / trace::kMaxTextBytes;
  for (std::size_t i = 0; i < fitting + 5; ++i) {
    writer.name(std::to_string(1'000'000'000 + i) + long_text);
  }
  ASSERT_TRUE(writer.close().ok());
  const ReadTrace read = read_trace(bytes);
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_EQ(read.dictionary.name_count(), fitting + 1);
  EXPECT_EQ(read.diagnostics.of(Loss::kUnwrittenWord), 5u);
}

TEST(TraceWriter, EveryCompressionLevelAndChunkSizeReads) {
  const auto trace = TraceBuilder{}.op("aten::mm").alloc("a", 1_MiB).op_end().free("a");
  for (const int level : {-1000, -1, 0, 3, 19, 1000}) {
    for (const std::size_t chunk_bytes : {std::size_t{0}, std::size_t{1} << 40}) {
      const ReadTrace read = read_trace(trace.bytes({chunk_bytes, level}));
      EXPECT_TRUE(read.status.ok()) << read.status.message();
      EXPECT_EQ(read.events.size(), 4u);
    }
  }
}

TEST(FileSink, SaysWhyAFileCannotBeCreated) {
  const Result<std::unique_ptr<Sink>> sink = open_file_sink("/nowhere/at/all.peak");
  ASSERT_FALSE(sink.ok());
  EXPECT_EQ(sink.status().message(),
            "cannot create '/nowhere/at/all.peak': No such file or directory");
}

TEST(FileSink, AFullDiskIsAStatus) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "this system has no /dev/full";
  Result<std::unique_ptr<Sink>> sink = open_file_sink("/dev/full");
  ASSERT_TRUE(sink.ok());
  const TraceWriter writer(std::move(*sink));
  EXPECT_EQ(writer.status().message(), "cannot write '/dev/full': No space left on device");
}

TEST(FileSink, WhatDidNotFitIsTakenBackSoThatTheTrailerCanSaySo) {
  const TempFile file;
  const pid_t child = ::fork();
  if (child == 0) {
    // A limit on file sizes cuts a write in the middle, as a full disk does.
    const rlimit limit{10'000, 10'000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(77);
    std::signal(SIGXFSZ, SIG_IGN);
    TraceWriter writer(open_file_sink(file.path()).value(), {}, {.chunk_bytes = 2000});
    std::mt19937_64 random(1);
    random_events(random, 5000).write_to(writer);
    ::_exit(writer.close().code() == StatusCode::kIo ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "file sizes cannot be limited here";
  ASSERT_EQ(WEXITSTATUS(status), 0);
  const ReadTrace read = read_trace(open_file_source(file.path()).value());
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_EQ(read.diagnostics.of(Loss::kNoTrailer), 0u);
  EXPECT_GT(read.events.size(), 100u);
  // What later versions added is in no count of events.
  const auto counts = [](const Event& event) { return trace::is_counted(event.body); };
  std::mt19937_64 again(1);
  const std::vector<Event> written = random_events(again, 5000).events();
  EXPECT_EQ(std::ranges::count_if(read.events, counts) +
                static_cast<std::ptrdiff_t>(read.diagnostics.of(Loss::kUnwrittenEvent)),
            std::ranges::count_if(written, counts));
}

TEST(FileSink, AForkedChildCannotMixItsBytesIn) {
  const TempFile file;
  Result<std::unique_ptr<Sink>> sink = open_file_sink(file.path());
  TraceWriter writer(std::move(*sink));
  for (int i = 0; i < 100; ++i) writer.write(kStep);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(writer.close().ok() ? 1 : 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  ASSERT_TRUE(writer.close().ok());
  EXPECT_EQ(read_trace(open_file_source(file.path()).value()).events.size(), 100u);
}

TEST(FileSource, SaysWhyAFileCannotBeOpened) {
  EXPECT_EQ(open_file_source("/nowhere.peak").status().message(),
            "cannot open '/nowhere.peak': No such file or directory");
  EXPECT_EQ(open_file_source("/").status().message(), "'/' is a folder, not a peakline recording");
}

TEST(FileSource, MessagesNameTheFile) {
  const TempFile file;
  std::ofstream(file.path()) << "action,addr,size\n";
  EXPECT_EQ(read_trace(open_file_source(file.path()).value()).status.message(),
            "'" + file.path() + "' is not a peakline recording: it seems to be CSV");
}

}  // namespace
}  // namespace peakline::testing
