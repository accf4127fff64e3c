#include "trace_builder.h"

#include <gtest/gtest.h>

namespace peakline::testing {
namespace {

TEST(TraceBuilder, TellsARunAsEvents) {
  auto trace = TraceBuilder{}
                   .device("cuda:0", 80_GiB)
                   .enter("Net.fc1")
                   .op("aten::mm")
                   .alloc("a", 4_MiB)
                   .op_end()
                   .leave("Net.fc1")
                   .thread("autograd")
                   .backward("Net.fc1")
                   .free("a")
                   .backward_end("Net.fc1")
                   .step();
  ASSERT_EQ(trace.events().size(), 9u);
  const auto& alloc = std::get<Alloc>(trace.events()[2].body);
  EXPECT_EQ(alloc.bytes, 4_MiB);
  EXPECT_EQ(alloc.requested, 4_MiB);
  EXPECT_EQ(std::get<Free>(trace.events()[6].body).block, alloc.block);
  EXPECT_EQ(trace.events()[2].time, TimeNs(3000));
  EXPECT_EQ(trace.dictionary().thread(trace.events()[6].thread), "autograd");
  const ModuleId fc1 = std::get<ModuleEnter>(trace.events()[0].body).module;
  EXPECT_EQ(trace.dictionary().module(fc1).path, "Net.fc1");
  EXPECT_EQ(trace.dictionary().module(trace.dictionary().module(fc1).parent).path, "Net");
}

TEST(TraceBuilder, ANameUsedAgainIsANewBlockAndAnUnknownOneIsNoOtherBlock) {
  auto trace = TraceBuilder{}.alloc("a", 1_KiB).free("a").alloc("a", 2_KiB).free("ghost");
  const BlockId first = std::get<Alloc>(trace.events()[0].body).block;
  const BlockId second = std::get<Alloc>(trace.events()[2].body).block;
  const BlockId ghost = std::get<Free>(trace.events()[3].body).block;
  EXPECT_NE(first, second);
  EXPECT_NE(ghost, first);
  EXPECT_NE(ghost, second);
}

TEST(TraceBuilder, TimeCanStandStillAndJump) {
  auto trace = TraceBuilder{}.tick(0).step().step().tick(5).step().wait(100).step();
  EXPECT_EQ(trace.events()[1].time, TimeNs(0));
  EXPECT_EQ(trace.events()[2].time, TimeNs(5));
  EXPECT_EQ(trace.events()[3].time, TimeNs(105));
}

}  // namespace
}  // namespace peakline::testing
