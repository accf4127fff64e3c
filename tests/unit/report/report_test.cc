#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <peakline/report.h>

#include "report/column.h"
#include "synthetic_run.h"
#include "trace_builder.h"

namespace peakline {
namespace {

using testing::TraceBuilder;

Report report_of(const TraceBuilder& trace, const ReportOptions& options = {}) {
  const std::vector<std::byte> bytes = trace.bytes();
  Result<Report> report = build_report(
      [&bytes]() -> Result<std::unique_ptr<Source>> { return make_memory_source(bytes); }, options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return std::move(*report);
}

std::vector<std::byte> synthetic(std::uint64_t events) {
  std::vector<std::byte> bytes;
  TraceWriter writer(make_memory_sink(bytes));
  testing::SyntheticRun run;
  run.define_words(writer);
  while (writer.event_count() < events) {
    for (const Event& event : run.next_step()) writer.write(event);
  }
  EXPECT_TRUE(writer.close().ok());
  return bytes;
}

bool has_point(const DeviceReport& device, std::uint64_t event) {
  return std::ranges::any_of(device.points, [event](const ReportPoint& point) {
    return point.event == event && point.has_alive;
  });
}

TEST(Report, ThePeakAndEachStepsPeakAreExactPoints) {
  TraceBuilder trace;
  for (int step = 0; step < 5; ++step) {
    trace.alloc("a", Bytes((step + 1) * 1000)).alloc("b", 5_KiB).free("a").free("b").step();
  }
  const Report report = report_of(trace, {.overview_points = 2, .window_points = 1});
  ASSERT_EQ(report.devices.size(), 1u);
  const DeviceSummary& summary = report.summary.devices[0];
  EXPECT_TRUE(has_point(report.devices[0], summary.peak_event));
  ASSERT_EQ(summary.steps.size(), 5u);
  for (const StepRow& step : summary.steps)
    EXPECT_TRUE(has_point(report.devices[0], step.peak_event));
}

TEST(Report, PointsOfTheOverviewLieAtTheHighestOfTheirStretch) {
  TraceBuilder trace;
  for (int i = 0; i < 400; ++i) {
    const std::string name = std::to_string(i);
    trace.alloc(name, i == 201 ? 9_MiB : 1_KiB).free(name);
  }
  const Report report = report_of(trace, {.overview_points = 8, .window_points = 1});
  Bytes highest;
  for (const ReportPoint& point : report.devices[0].points) {
    highest = std::max(highest, point.allocated);
  }
  EXPECT_EQ(highest, 9_MiB);
}

TEST(Report, EveryBoundHoldsForALongRun) {
  const std::vector<std::byte> bytes = synthetic(200'000);
  const ReportOptions options{.overview_points = 256,
                              .window_points = 64,
                              .step_peaks = 16,
                              .alive_changes = 5'000,
                              .spans = 500};
  const Result<Report> report = build_report(
      [&bytes]() -> Result<std::unique_ptr<Source>> { return make_memory_source(bytes); }, options);
  ASSERT_TRUE(report.ok());
  const DeviceReport& device = report->devices.at(0);
  EXPECT_LE(device.points.size(), 256u + 3 * 2 * 64 + 16 + 2);
  EXPECT_LE(device.changes.size(), 5'000u);
  EXPECT_LE(report->spans.size(), 500u);
  EXPECT_GT(report->spans_left_out, 0u);
  for (const ReportPoint& point : device.points) {
    Bytes sum;
    for (const Bytes held : point.by_category) sum += held;
    EXPECT_EQ(sum, point.allocated);
  }
}

TEST(Report, SpansNestAsTheCallsDid) {
  TraceBuilder trace;
  trace.phase_begin(Phase::kForward).enter("Net").enter("Net.a").alloc("x", 1_MiB).leave("Net.a");
  trace.leave("Net").phase_end(Phase::kForward).step();
  const Report report = report_of(trace);
  std::map<ReportSpan::Kind, int> kinds;
  for (const ReportSpan& span : report.spans) ++kinds[span.kind];
  EXPECT_EQ(kinds[ReportSpan::Kind::kStep], 1);
  EXPECT_EQ(kinds[ReportSpan::Kind::kPhase], 1);
  ASSERT_EQ(kinds[ReportSpan::Kind::kForward], 2);
  for (const ReportSpan& span : report.spans) {
    if (span.kind != ReportSpan::Kind::kForward) continue;
    const bool inner = report.dictionary.module(ModuleId(span.subject)).path == "Net.a";
    EXPECT_EQ(span.depth, inner ? 1 : 0);
  }
}

TEST(SegmentMaps, RecordedSegmentsAreDrawnWithTheirHoles) {
  TraceBuilder trace;  // blocks go to 0x7f00'0000'0000 and upwards
  trace.segment_alloc(0x7f00'0000'0000, 20_MiB);
  trace.alloc("a", 4_MiB).alloc("b", 6_MiB).alloc("c", 2_MiB).free("b").alloc("d", 7_MiB);
  const Report report = report_of(trace);
  ASSERT_FALSE(report.devices[0].maps.empty());
  const SegmentMap& map = report.devices[0].maps[0];
  EXPECT_FALSE(map.simulated);
  EXPECT_EQ(map.reserved, 20_MiB);
  EXPECT_EQ(map.allocated, 13_MiB);
  ASSERT_EQ(map.segments.size(), 1u);
  ASSERT_EQ(map.segments[0].blocks.size(), 3u);
  EXPECT_EQ(map.segments[0].blocks[1].offset, 10_MiB);
  EXPECT_EQ(map.largest_free, 6_MiB);
}

TEST(SegmentMaps, ReturnedSegmentsAreInTheMapOfTheirTime) {
  TraceBuilder trace;
  trace.segment_alloc(0x7f00'0000'0000, 20_MiB).alloc("a", 4_MiB).free("a");
  trace.segment_free(0x7f00'0000'0000, 20_MiB);
  const Report report = report_of(trace);
  ASSERT_FALSE(report.devices[0].maps.empty());
  EXPECT_EQ(report.devices[0].maps[0].reserved, 20_MiB);
  EXPECT_EQ(report.devices[0].maps[0].allocated, 4_MiB);
}

TEST(SegmentMaps, WithoutSegmentsTheSimulatedAllocatorsAreDrawn) {
  TraceBuilder trace;
  trace.alloc("a", 3_MiB).alloc("b", 30_MiB);
  const Report report = report_of(trace);
  ASSERT_FALSE(report.devices[0].maps.empty());
  const SegmentMap& map = report.devices[0].maps[0];
  EXPECT_TRUE(map.simulated);
  EXPECT_EQ(map.reserved, 50_MiB);  // a large buffer of 20 MiB, and a segment of its own
  EXPECT_EQ(map.allocated, 33_MiB);
}

TEST(SegmentMaps, TheHostHasNone) {
  TraceBuilder trace;
  trace.device("cpu").alloc("a", 3_MiB);
  EXPECT_TRUE(report_of(trace).devices[0].maps.empty());
}

TEST(Report, ADeviceThatAppearsLateHasAllOfItsMemory) {
  TraceBuilder trace;
  trace.device("cpu").alloc("host", 1_MiB).device("cuda:0").alloc("gpu", 2_MiB);
  const Report report = report_of(trace);
  ASSERT_EQ(report.devices.size(), 2u);
  EXPECT_EQ(report.devices[0].points.back().allocated, 2_MiB);
  EXPECT_EQ(report.devices[1].points.back().allocated, 1_MiB);
}

TEST(ReportJson, IsWholeForARunWithoutAnything) {
  const nlohmann::json json = nlohmann::json::parse(report_to_json(report_of({}), "empty"));
  EXPECT_EQ(json["kind"], "report");
  EXPECT_TRUE(json["devices"].empty());
}

TEST(PackedColumn, WritesZigzagVarintsInBase64) {
  PackedColumn column;
  for (const std::int64_t value : {0, -1, 1, 64, -65}) column.add(value);
  EXPECT_EQ(column.base64(), "AAECgAGBAQ==");
}

TEST(Page, NoNameCanLeaveTheElementThatHoldsTheData) {
  TraceBuilder trace;
  trace.enter("</script><script>alert(1)</script><!--").op("a\xE2\x80\xA8z").alloc("a", 1_MiB);
  const std::string json = report_to_json(report_of(trace), "</SCRIPT>");
  const Result<std::string> page = fill_page("<script>\"@peakline-data@\"</script>", json);
  ASSERT_TRUE(page.ok());
  const std::string inside =
      page->substr(8, page->size() - 8 - std::string_view("</script>").size());
  EXPECT_EQ(inside.find('<'), std::string::npos);
  EXPECT_EQ(inside.find("\xE2\x80\xA8"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(inside), nlohmann::json::parse(json));
}

TEST(Page, WithoutAPlaceForDataIsRefused) { EXPECT_FALSE(fill_page("<html>", "{}").ok()); }

}  // namespace
}  // namespace peakline
