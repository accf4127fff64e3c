#include "ledger/region_spans.h"

#include <gtest/gtest.h>

#include "replayed.h"
#include "report/line_table.h"

namespace peakline {
namespace {

using testing::TraceBuilder;
using namespace peakline::literals;

std::vector<RegionRow> regions_of(const TraceBuilder& trace) {
  RegionSpansPass regions;
  PeakPass peak;
  testing::play(trace, {&regions, &peak});
  return region_table(peak.peaks().at(0).held, regions, DeviceId(0));
}

TEST(Regions, EachHasItsOwnPeakAndItsShareOfTheDevices) {
  TraceBuilder trace;
  trace.alloc("w", 1_MiB).region("train").alloc("a", 8_MiB).free("a").region_end();
  trace.region("eval").alloc("b", 2_MiB).region_end().free("b");
  const std::vector<RegionRow> rows = regions_of(trace);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].path, "train");
  EXPECT_EQ(rows[0].highest, 9_MiB);
  EXPECT_EQ(rows[0].at_peak, 8_MiB);
  EXPECT_EQ(rows[1].highest, 3_MiB);
  EXPECT_EQ(rows[1].at_peak, Bytes{});
}

TEST(Regions, OneInsideAnotherCountsForBoth) {
  TraceBuilder trace;
  for (int i = 0; i < 3; ++i) {
    trace.region("train").alloc("a", 4_MiB).region("loss").alloc("b", 2_MiB).region_end();
    trace.region_end().free("a").free("b");
  }
  const std::vector<RegionRow> rows = regions_of(trace);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at_peak, 6_MiB);
  EXPECT_EQ(rows[1].path, "train / loss");
  EXPECT_EQ(rows[1].at_peak, 2_MiB);
  EXPECT_EQ(rows[1].entered, 3u);
}

TEST(Regions, AutogradsThreadsAreInTheRegionThatCalledBackward) {
  TraceBuilder trace;
  trace.region("train").phase_begin(Phase::kBackward).thread("autograd").alloc("g", 4_MiB);
  trace.thread("main").phase_end(Phase::kBackward).region_end();
  EXPECT_EQ(regions_of(trace).at(0).at_peak, 4_MiB);
}

TEST(Regions, AnotherThreadIsNotInThem) {
  TraceBuilder trace;
  trace.region("train").thread("loader").alloc("g", 4_MiB).thread("main").region_end();
  EXPECT_EQ(regions_of(trace).at(0).at_peak, Bytes{});
}

TEST(Regions, AnEndWithoutABeginningIsCounted) {
  RegionSpansPass regions;
  EXPECT_EQ(testing::play(TraceBuilder{}.region_end(), {&regions}).of(Loss::kRegionEndWithoutBegin),
            1u);
}

}  // namespace
}  // namespace peakline
