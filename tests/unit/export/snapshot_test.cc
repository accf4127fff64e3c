#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include <peakline/export.h>
#include <peakline/import.h>
#include <peakline/summary.h>

#include "import/pickle.h"
#include "trace_builder.h"

namespace peakline::testing {
namespace {

std::vector<std::byte> snapshot_of(const TraceBuilder& trace) {
  const std::vector<std::byte> bytes = trace.bytes();
  const std::vector<ExportInput> runs{{"run.peak", [&bytes]() -> Result<std::unique_ptr<Source>> {
                                         return make_memory_source(bytes);
                                       }}};
  std::vector<std::byte> out;
  EXPECT_TRUE(export_snapshot(runs, make_memory_sink(out)).ok());
  return out;
}

struct Read {
  pickle::Value value;  // keeps everything alive
  std::vector<std::string> actions;
  std::vector<const pickle::Container*> entries;
};

Read read(const std::vector<std::byte>& bytes) {
  Read out;
  Result<pickle::Value> value = pickle::read(*make_memory_source(bytes));
  EXPECT_TRUE(value.ok()) << value.status().message();
  if (!value.ok()) return out;
  out.value = *value;
  const pickle::Container* root = pickle::container_of(out.value);
  const pickle::Container* traces = pickle::container_of(*root->find("device_traces"));
  for (const pickle::Value& item : pickle::container_of(traces->items.at(0))->items) {
    out.entries.push_back(pickle::container_of(item));
    out.actions.emplace_back(pickle::text_of(*out.entries.back()->find("action")));
  }
  return out;
}

Result<Summary> imported(const std::vector<std::byte>& snapshot) {
  std::vector<std::byte> recording;
  TraceWriter writer(make_memory_sink(recording));
  const auto open = [&]() -> Result<std::unique_ptr<Source>> {
    return make_memory_source(snapshot);
  };
  const Result<ImportedCounts> counts = import_snapshot(open, *make_writer_sink(writer));
  if (!counts.ok()) return counts.status();
  EXPECT_TRUE(writer.close().ok());
  Result<TraceReader> reader = TraceReader::open(make_memory_source(recording));
  if (!reader.ok()) return reader.status();
  return summarize(*reader);
}

constexpr std::uint64_t kSegment = 0x7f00'0000'0000;  // where TraceBuilder puts its blocks

TEST(ExportSnapshot, AFreeIsRequestedAndCompleted) {
  TraceBuilder trace;
  trace.segment_alloc(kSegment, 20_MiB).alloc("a", 4_MiB).free("a").alloc("b", 1_MiB);
  const std::vector<std::string> expected{"segment_alloc", "alloc", "free_requested",
                                          "free_completed", "alloc"};
  EXPECT_EQ(read(snapshot_of(trace)).actions, expected);
}

TEST(ExportSnapshot, ABlockUsedOnAnotherStreamIsCompletedWhenTheRecordingSaysSo) {
  TraceBuilder trace;
  trace.segment_alloc(kSegment, 20_MiB).alloc("a", 4_MiB).stream_use("a", 3).free("a");
  trace.alloc("b", 1_MiB).free_completed("a");
  const std::vector<std::string> expected{"segment_alloc", "alloc", "free_requested", "alloc",
                                          "free_completed"};
  EXPECT_EQ(read(snapshot_of(trace)).actions, expected);
}

TEST(ExportSnapshot, ABlockOfWhichOnlyTheWaitingWasSeenWaits) {
  TraceBuilder trace;
  trace.segment_alloc(kSegment, 20_MiB).alloc("a", 4_MiB).free("a");
  trace.stream_use("a", kUnknownStream.raw()).alloc("b", 1_MiB);
  const std::vector<std::string> expected{"segment_alloc", "alloc", "free_requested", "alloc"};
  EXPECT_EQ(read(snapshot_of(trace)).actions, expected);
}

TEST(ExportSnapshot, FramesAreTheOpItsModulesAndThePhase) {
  TraceBuilder trace;
  trace.segment_alloc(kSegment, 20_MiB).module("Net", "Net").module("Net.fc", "Linear");
  trace.enter("Net").enter("Net.fc").op("aten::mm").alloc("a", 4_MiB).op_end();
  const Read snapshot = read(snapshot_of(trace));
  const pickle::Container* frames = pickle::container_of(*snapshot.entries.at(1)->find("frames"));
  std::vector<std::string> names;
  for (const pickle::Value& frame : frames->items) {
    names.emplace_back(pickle::text_of(*pickle::container_of(frame)->find("name")));
  }
  const std::vector<std::string> expected{"aten::mm", "Net.fc (Linear)", "Net (Net)", "forward"};
  EXPECT_EQ(names, expected);
}

TEST(ExportSnapshot, ComesBackWithTheSamePeaksAndOps) {
  TraceBuilder trace;
  trace.segment_alloc(kSegment, 20_MiB).op("aten::mm").alloc("a", 4_MiB, Bytes(4'194'000));
  trace.op_end().op("aten::add").alloc("b", 3_MiB).op_end().free("a").alloc("c", 1_MiB);
  trace.segment_free(kSegment, 20_MiB);
  const Result<Summary> summary = imported(snapshot_of(trace));
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  EXPECT_EQ(summary->devices.at(0).peak_allocated, 7_MiB);
  EXPECT_EQ(summary->devices.at(0).peak_reserved, 20_MiB);
  EXPECT_EQ(summary->devices.at(0).peak_op, "aten::add");
}

TEST(ExportSnapshot, WithoutSegmentsASimulatedAllocatorPlacesTheBlocks) {
  TraceBuilder trace;
  trace.device("cpu").alloc("a", 4_MiB).alloc("b", 30_MiB).free("a");
  const Result<Summary> summary = imported(snapshot_of(trace));
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  EXPECT_EQ(summary->devices.at(0).peak_allocated, 34_MiB);
  EXPECT_GE(summary->devices.at(0).peak_reserved, 34_MiB);
}

TEST(ExportSnapshot, LongTracesAreHandedOverInPieces) {
  TraceBuilder trace;
  trace.segment_alloc(kSegment, 4096_MiB);
  for (int i = 0; i < 2500; ++i) trace.alloc("a", 1_KiB).free("a");
  EXPECT_EQ(read(snapshot_of(trace)).entries.size(), 7501U);
}

TEST(ImportSnapshot, NewerKeysAndActionsAreNoObstacle) {
  // torch 2.15: "annotate" entries, internal_metadata, pool_id.
  const std::string text =
      "(dp0\nVdevice_traces\np1\n(lp2\n(lp3\n"
      "(dp4\nVaction\nVsegment_alloc\nsVaddr\nI4096\nsVsize\nI2097152\nsVstream\nI0\nsVtime_"
      "us\nI1\nsVpool_id\n(I0\nI0\ntsa"
      "(dp5\nVaction\nValloc\nsVaddr\nI4096\nsVsize\nI512\nsVstream\nI0\nsVtime_us\nI2\nsVinternal_"
      "metadata\nVmallocWithAddress\nsa"
      "(dp6\nVaction\nVannotate\nsVaddr\nI4096\nsVsize\nI0\nsVuser_metadata\nVmine\nsVtime_"
      "us\nI3\nsa"
      "asVsegments\n(lp7\nsVexternal_annotations\n(lp8\ns.";
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  const Result<Summary> summary = imported(bytes);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  EXPECT_EQ(summary->devices.at(0).peak_allocated, Bytes(512));
}

}  // namespace
}  // namespace peakline::testing
