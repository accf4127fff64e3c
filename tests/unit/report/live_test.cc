#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include <peakline/live.h>

#include "trace_builder.h"

namespace peakline::testing {
namespace {

// The bytes of a file that is being written: a reader finds what has been let through.
class GrowingSource final : public Source {
 public:
  GrowingSource(const std::vector<std::byte>& bytes, const std::size_t& written)
      : bytes_(bytes), written_(written) {}
  Result<std::size_t> read(std::span<std::byte> buffer) override {
    const std::size_t size = std::min(buffer.size(), std::min(written_, bytes_.size()) - at_);
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at_), size, buffer.begin());
    at_ += size;
    return size;
  }
  [[nodiscard]] std::string_view name() const noexcept override { return "growing"; }

 private:
  const std::vector<std::byte>& bytes_;
  const std::size_t& written_;
  std::size_t at_ = 0;
};

struct Growing {
  std::vector<std::byte> bytes;
  std::size_t written = 0;
  LiveRun run{[this]() -> Result<std::unique_ptr<Source>> {
    return std::unique_ptr<Source>(std::make_unique<GrowingSource>(bytes, written));
  }};

  LiveTotals now() {
    Result<LiveTotals> totals = run.now();
    EXPECT_TRUE(totals.ok()) << totals.status().message();
    return totals.ok() ? *totals : LiveTotals{};
  }
};

// Writes into `bytes`, a chunk for each call of flush().
TraceWriter writer_of(std::vector<std::byte>& bytes) {
  return TraceWriter(make_memory_sink(bytes));
}

Event alloc_event(std::uint64_t block, Bytes bytes, DeviceId device) {
  return {TimeNs(1), ThreadId{}, Alloc{BlockId(block), bytes, bytes, {}, {}, device}};
}

TEST(LiveRun, EachQuestionReadsOnFromTheLast) {
  Growing file;
  TraceWriter writer = writer_of(file.bytes);
  const DeviceId device = writer.device({"cuda:0", "", Bytes{}});
  EXPECT_TRUE(file.now().devices.empty());

  writer.write(alloc_event(1, 4_MiB, device));
  writer.write(alloc_event(2, 2_MiB, device));
  writer.write({TimeNs(2), ThreadId{}, Free{BlockId(2)}});
  writer.write({TimeNs(3), ThreadId{}, StepEnd{}});
  ASSERT_TRUE(writer.flush().ok());
  file.written = file.bytes.size();
  LiveTotals totals = file.now();
  ASSERT_EQ(totals.devices.size(), 1U);
  EXPECT_EQ(totals.steps_completed, 1U);
  EXPECT_EQ(totals.devices[0].name, "cuda:0");
  EXPECT_EQ(totals.devices[0].allocated, 4_MiB);
  EXPECT_EQ(totals.devices[0].peak_allocated, 6_MiB);
  EXPECT_EQ(totals.devices[0].step_peak, 6_MiB);
  EXPECT_FALSE(totals.devices[0].reserved);

  writer.write({TimeNs(4), ThreadId{}, Reserved{20_MiB, device}});
  writer.write(alloc_event(3, 1_MiB, device));
  writer.write({TimeNs(5), ThreadId{}, StepEnd{}});
  ASSERT_TRUE(writer.close().ok());
  file.written = file.bytes.size();
  totals = file.now();
  EXPECT_EQ(totals.steps_completed, 2U);
  EXPECT_EQ(totals.devices[0].allocated, 5_MiB);
  EXPECT_EQ(totals.devices[0].peak_allocated, 6_MiB);
  EXPECT_EQ(totals.devices[0].step_peak, 5_MiB);
  EXPECT_EQ(totals.devices[0].reserved, 20_MiB);
  EXPECT_EQ(totals.devices[0].peak_reserved, 20_MiB);
  EXPECT_EQ(file.now().devices[0].allocated, 5_MiB);
}

TEST(LiveRun, HalfAChunkIsReadWhenItIsWhole) {
  Growing file;
  TraceWriter writer = writer_of(file.bytes);
  const DeviceId device = writer.device({"cuda:0", "", Bytes{}});
  for (std::uint64_t i = 0; i < 40; ++i) {
    writer.write(alloc_event(i + 1, 1_MiB, device));
    ASSERT_TRUE(writer.flush().ok());
  }
  ASSERT_TRUE(writer.close().ok());
  Bytes last;
  for (; file.written < file.bytes.size(); file.written += 7) {
    const LiveTotals totals = file.now();
    if (totals.devices.empty()) continue;
    EXPECT_GE(totals.devices[0].allocated, last);
    last = totals.devices[0].allocated;
  }
  file.written = file.bytes.size();
  EXPECT_EQ(file.now().devices[0].allocated, 40_MiB);
}

TEST(LiveRun, CategoriesAtThePeakAreThoseOfTheSummary) {
  TraceBuilder trace;
  trace.alloc("weight", 8_MiB).label("weight", category::kParameter).enter("Net").op("aten::mm");
  trace.alloc("scratch", 3_MiB).alloc("out", 2_MiB).free("scratch").op_end().leave("Net");
  trace.phase_begin(Phase::kBackward).free("out").phase_end(Phase::kBackward).step();
  Growing file{.bytes = trace.bytes()};
  file.written = file.bytes.size();
  Result<TraceReader> reader = TraceReader::open(make_memory_source(file.bytes));
  ASSERT_TRUE(reader.ok());
  const Result<Summary> summary = summarize(*reader);
  ASSERT_TRUE(summary.ok());
  const std::vector<NamedBytes>& expected = summary->devices[0].by_category;
  const LiveTotals totals = file.now();
  const std::vector<NamedBytes>& live = totals.devices[0].by_category;
  ASSERT_EQ(live.size(), expected.size());
  for (std::size_t i = 0; i < live.size(); ++i) {
    EXPECT_EQ(live[i].name, expected[i].name);
    EXPECT_EQ(live[i].bytes, expected[i].bytes);
  }
}

}  // namespace
}  // namespace peakline::testing
