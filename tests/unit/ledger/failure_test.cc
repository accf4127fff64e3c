#include "ledger/failure.h"

#include <gtest/gtest.h>

#include "replayed.h"

namespace peakline {
namespace {

using testing::TraceBuilder;
using namespace peakline::literals;

TEST(Failure, SaysWhatWasAskedForWhereAndWhatWasAlive) {
  TraceBuilder trace;
  trace.alloc("w", 8_MiB).label("w", category::kParameter).alloc("gone", 2_MiB).free("gone");
  trace.enter("Net").op("aten::mm").at("a.py:3 f").oom(64_MiB).op_end().leave("Net").free("w");
  FailurePass pass;
  testing::play(trace, {&pass});
  const Failure* failure = pass.of(DeviceId(0));
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->requested, 64_MiB);
  EXPECT_EQ(failure->allocated, 8_MiB);
  EXPECT_EQ(trace.dictionary().op(failure->place.op), "aten::mm");
  EXPECT_EQ(trace.dictionary().line(trace.dictionary().own_line(failure->place.call.stack)).line,
            3u);
  EXPECT_EQ(testing::total(failure->held), 8_MiB);
  EXPECT_EQ(testing::held_in(failure->held, category::kParameter), 8_MiB);
}

TEST(Failure, ARetryIsNone) {
  FailurePass pass;
  testing::play(TraceBuilder{}.oom(1_MiB, OutOfMemory::Kind::kRetry), {&pass});
  EXPECT_EQ(pass.of(DeviceId(0)), nullptr);
}

TEST(Failure, TheStackOfAFailureIsNotThatOfTheNextAllocation) {
  TraceBuilder trace;
  trace.at("a.py:3 f").oom(64_MiB).alloc("x", 1_MiB);
  PeakPass peak;
  testing::play(trace, {&peak});
  EXPECT_EQ(peak.peaks().at(0).held.at(0).call.stack, StackId{});
}

}  // namespace
}  // namespace peakline
