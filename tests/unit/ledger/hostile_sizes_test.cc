// Sizes that no memory has: counted, not believed, and no sum of them goes wrong.
#include <gtest/gtest.h>

#include <limits>

#include <peakline/summary.h>

#include "trace_builder.h"

namespace peakline::testing {
namespace {

const Bytes kHuge(std::numeric_limits<std::int64_t>::max());
const Bytes kHalf((std::int64_t{1} << 62) + 1);
const Bytes kPebibyte(std::int64_t{1} << 50);

Summary summary_of(const TraceBuilder& trace) {
  const auto bytes = trace.bytes();
  auto reader = TraceReader::open(make_memory_source(bytes));
  return *summarize(*reader);
}

TEST(HostileSizes, ATotalCannotOverflow) {
  TraceBuilder trace;
  trace.alloc("a", kHalf).alloc("b", kHalf).alloc("c", kHuge).alloc("d", 5_MiB);
  const Summary summary = summary_of(trace);
  EXPECT_EQ(summary.main_device()->peak_allocated, 5_MiB);
  ASSERT_EQ(summary.warnings.size(), 1u);
  EXPECT_EQ(summary.warnings[0], "3 events carry more bytes than any memory has");
}

TEST(HostileSizes, WhatIsAllocatedOverTheRunStopsAtTheLargestNumber) {
  TraceBuilder trace;
  trace.op("aten::mm");
  for (int i = 0; i < 9000; ++i) trace.alloc("a", kPebibyte).free("a");
  const Summary summary = summary_of(trace.op_end());
  EXPECT_EQ(summary.main_device()->peak_allocated, kPebibyte);
  EXPECT_EQ(summary.main_device()->ops.at(0).allocated, kHuge);
}

TEST(HostileSizes, ReservedBytesCannotOverflow) {
  TraceBuilder trace;
  trace.device("cuda:0", 80_GiB).alloc("a", 5_MiB);
  for (const Bytes bytes : {kHuge, kHalf, kHalf, 20_MiB}) trace.segment_alloc(0x1000, bytes);
  EXPECT_EQ(summary_of(trace).main_device()->peak_reserved, 20_MiB);
}

}  // namespace
}  // namespace peakline::testing
