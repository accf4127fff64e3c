// A recording that must not grow: peaks stay whole, steps keep their peaks, the file stays small.
#include <gtest/gtest.h>

#include <map>

#include <peakline/size_bound.h>
#include <peakline/summary.h>

#include "read_trace.h"
#include "trace_builder.h"

namespace peakline::testing {
namespace {

std::vector<std::byte> written(const TraceBuilder& trace, Bytes most) {
  const auto whole = trace.bytes();
  auto reader = TraceReader::open(make_memory_source(whole));
  std::vector<std::byte> bytes;
  WriterOptions options;
  options.chunk_bytes = 4096;
  if (most > Bytes{}) options.filter = make_size_bound(most);
  TraceWriter writer(make_memory_sink(bytes), {}, options);
  const ReadTrace read = read_trace(whole);
  for (std::uint32_t i = 1; i < read.dictionary.op_count(); ++i)
    writer.op(read.dictionary.op(OpId(i)));
  for (std::uint32_t i = 1; i < read.dictionary.name_count(); ++i) {
    writer.name(read.dictionary.name(NameId(i)));
  }
  for (std::uint32_t i = 1; i < read.dictionary.module_count(); ++i) {
    const ModuleInfo& module = read.dictionary.module(ModuleId(i));
    writer.module(module.path, module.type, module.parent);
  }
  for (std::uint32_t i = 0; i < read.dictionary.device_count(); ++i) {
    writer.device(read.dictionary.device(DeviceId(static_cast<std::uint8_t>(i))));
  }
  for (std::uint32_t i = 0; i < read.dictionary.thread_count(); ++i) {
    writer.thread(read.dictionary.thread(ThreadId(static_cast<std::uint16_t>(i))));
  }
  for (const Event& event : read.events) writer.write(event);
  EXPECT_TRUE(writer.close().ok());
  return bytes;
}

Summary summary_of(const std::vector<std::byte>& bytes) {
  auto reader = TraceReader::open(make_memory_source(bytes));
  return *summarize(*reader);
}

// Steps of a small model; `growth` more is kept from each.
TraceBuilder training(int steps, Bytes growth) {
  TraceBuilder trace;
  trace.device("cuda:0", 80_GiB);
  trace.alloc("weight", 64_MiB).label("weight", category::kParameter, "Net.fc", "weight");
  for (int step = 0; step < steps; ++step) {
    trace.enter("Net.fc").op("aten::mm");
    for (int i = 0; i < 10; ++i) {  // of changing sizes, as sequences of changing length give them
      const unsigned noise = static_cast<unsigned>(10 * step + i) * 2654435761U >> 12;
      trace.alloc("a" + std::to_string(i), Bytes((1 << 20) + 512 * static_cast<int>(noise % 1000)));
    }
    trace.op_end().leave("Net.fc").phase_begin(Phase::kBackward).op("aten::mul");
    trace.alloc("grad", 64_MiB).op_end();
    for (int i = 0; i < 10; ++i) trace.free("a" + std::to_string(i));
    trace.phase_end(Phase::kBackward).label("grad", category::kGradient, "Net.fc", "weight");
    if (growth > Bytes{})
      trace.op("aten::add").alloc("leak" + std::to_string(step), growth).op_end();
    trace.free("grad").step();
  }
  return trace;
}

TEST(SizeBound, ALongRunStaysBelowItAndAnswersAsTheWholeOneDoes) {
  const TraceBuilder trace = training(4000, Bytes{});
  const auto whole = written(trace, Bytes{});
  const auto bounded = written(trace, 64_KiB);
  EXPECT_GT(whole.size(), 100'000u);
  EXPECT_LT(bounded.size(), 65'536u);
  const Summary all = summary_of(whole);
  const Summary kept = summary_of(bounded);
  const DeviceSummary& expected = *all.main_device();
  const DeviceSummary& found = *kept.main_device();
  EXPECT_EQ(found.peak_allocated, expected.peak_allocated);
  EXPECT_EQ(found.allocated_at_end, expected.allocated_at_end);
  EXPECT_EQ(kept.steps_completed, all.steps_completed);
  ASSERT_EQ(found.steps.size(), expected.steps.size());
  for (std::size_t i = 0; i < found.steps.size(); ++i) {
    EXPECT_EQ(found.steps[i].peak_allocated, expected.steps[i].peak_allocated) << i;
  }
  ASSERT_EQ(kept.warnings.size(), 1u);
  EXPECT_NE(kept.warnings[0].find("were left out"), std::string::npos);
}

TEST(SizeBound, APeakInThePartThatIsSummedUpIsWhole) {
  const TraceBuilder trace = training(2000, Bytes(4096));  // the last step is the highest
  const Summary all = summary_of(written(trace, Bytes{}));
  const Summary kept = summary_of(written(trace, 128_KiB));
  const DeviceSummary& expected = *all.main_device();
  const DeviceSummary& found = *kept.main_device();
  EXPECT_EQ(found.peak_allocated, expected.peak_allocated);
  EXPECT_EQ(found.peak_step, expected.peak_step);
  EXPECT_EQ(found.peak_op, expected.peak_op);
  EXPECT_EQ(found.peak_phase, expected.peak_phase);
  std::map<std::string, Bytes> by_category;
  for (const NamedBytes& row : found.by_category) by_category[row.name] = row.bytes;
  for (const NamedBytes& row : expected.by_category) {
    if (row.name == "Parameter" || row.name == "Gradient") {
      EXPECT_EQ(by_category[row.name], row.bytes);
    }
  }
  EXPECT_EQ(found.allocated_at_end, expected.allocated_at_end);
}

TEST(SizeBound, AShortRunIsKeptAsItIs) {
  const TraceBuilder trace = training(5, Bytes{});
  EXPECT_EQ(written(trace, 64_MiB), written(trace, Bytes{}));
}

}  // namespace
}  // namespace peakline::testing
