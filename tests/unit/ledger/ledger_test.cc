#include <gtest/gtest.h>

#include <map>
#include <random>

#include <peakline/ledger.h>

#include "replayed.h"

namespace peakline {
namespace {

using testing::TraceBuilder;

// The ledger at the end of a trace.
struct End : Pass {
  void finish(const Now& now) override {
    totals = now.ledger.totals(DeviceId{});
    now.ledger.for_each_live([&](const Block& block) { live.push_back(block); });
  }
  DeviceTotals totals;
  std::vector<Block> live;
};

TEST(Ledger, TotalIsWhatWasAllocatedAndNotFreed) {
  End end;
  testing::play(TraceBuilder{}.alloc("a", 4_MiB).alloc("b", 1_MiB).free("a"), {&end});
  EXPECT_EQ(end.totals.allocated, 1_MiB);
  ASSERT_EQ(end.live.size(), 1u);
}

TEST(Ledger, BlockBelongsToTheOpAndModuleThatAllocatedIt) {
  End end;
  TraceBuilder trace;
  trace.enter("Net").enter("Net.fc").op("aten::mm").alloc("a", 4_MiB).op_end();
  testing::play(trace.leave("Net.fc").leave("Net"), {&end});
  EXPECT_EQ(trace.dictionary().op(end.live.at(0).op), "aten::mm");
  EXPECT_EQ(trace.dictionary().module(end.live.at(0).module).path, "Net.fc");
}

TEST(Ledger, AnOpThatOnlyAllocatesForAnotherIsNotBlamed) {
  End end;
  TraceBuilder trace;
  trace.op("aten::convolution").op("aten::empty").alloc("a", 4_MiB).op_end().op_end();
  trace.op("aten::empty").alloc("b", 1_MiB).op_end();
  testing::play(trace, {&end});
  std::map<std::int64_t, std::string_view> op_of_size;
  for (const Block& block : end.live) {
    op_of_size[block.bytes.raw()] = trace.dictionary().op(block.op);
  }
  EXPECT_EQ(op_of_size[(4_MiB).raw()], "aten::convolution");
  EXPECT_EQ(op_of_size[(1_MiB).raw()], "aten::empty");
}

TEST(Ledger, OtherThreadsOpsAndModulesAreNotBlamed) {
  End end;
  TraceBuilder trace;
  trace.enter("Net").op("aten::mm").thread("loader").alloc("a", 4_MiB);
  testing::play(trace, {&end});
  EXPECT_EQ(end.live.at(0).op, OpId{});
  EXPECT_EQ(end.live.at(0).module, ModuleId{});
}

TEST(Ledger, LabelNamesTheOwner) {
  End end;
  TraceBuilder trace;
  trace.alloc("w", 4_MiB).label("w", category::kParameter, "Net.fc", "weight");
  testing::play(trace, {&end});
  EXPECT_EQ(end.live.at(0).label, category::kParameter);
  EXPECT_EQ(trace.dictionary().module(end.live.at(0).module).path, "Net.fc");
  EXPECT_EQ(trace.dictionary().name(end.live.at(0).name), "weight");
}

TEST(Ledger, ResizeChangesTheTotal) {
  End end;
  testing::play(TraceBuilder{}.alloc("a", 4_MiB).resize("a", 0_B).resize("a", 6_MiB), {&end});
  EXPECT_EQ(end.totals.allocated, 6_MiB);
}

TEST(Ledger, ReservedFollowsSegmentsOrWhatTheProducerSays) {
  End end;
  testing::play(
      TraceBuilder{}.segment_alloc(1, 20_MiB).segment_alloc(2, 2_MiB).segment_free(1, 20_MiB),
      {&end});
  EXPECT_EQ(end.totals.reserved, 2_MiB);
  EXPECT_EQ(end.totals.segments, 2u);

  End told;
  testing::play(TraceBuilder{}.reserved(30_MiB).reserved(10_MiB), {&told});
  EXPECT_EQ(told.totals.reserved, 10_MiB);
}

TEST(Ledger, WhatCannotBeTrueIsCountedAndChangesNothing) {
  End end;
  TraceBuilder trace;
  trace.alloc("a", 4_MiB).free("ghost").resize("ghost", 1_MiB).label("ghost", category::kBuffer);
  trace.add(Alloc{trace.block_id("a"), 1_MiB, 1_MiB, {}, {}, {}});
  trace.alloc("negative", Bytes(-5)).resize("a", Bytes(-5));
  trace.segment_free(7, 2_MiB).op_end().leave("Net").phase_end(Phase::kBackward);
  trace.free("a").free("a").alloc("b", 1_MiB);
  const Diagnostics diagnostics = testing::play(trace, {&end});

  EXPECT_EQ(end.totals.allocated, 1_MiB);
  EXPECT_EQ(end.totals.reserved, 0_B);
  EXPECT_EQ(diagnostics.of(Loss::kUnknownBlock), 4u);
  EXPECT_EQ(diagnostics.of(Loss::kBlockTwice), 1u);
  EXPECT_EQ(diagnostics.of(Loss::kNegativeSize), 2u);
  EXPECT_EQ(diagnostics.of(Loss::kNegativeReserved), 1u);
  EXPECT_EQ(diagnostics.of(Loss::kOpEndWithoutBegin), 1u);
  EXPECT_EQ(diagnostics.of(Loss::kModuleLeaveWithoutEnter), 1u);
  EXPECT_EQ(diagnostics.of(Loss::kPhaseEndWithoutBegin), 1u);
}

TEST(Ledger, WhatAProducerLostIsCountedByItsName) {
  const Diagnostics diagnostics =
      testing::play(TraceBuilder{}.lost(Loss::kUnseenFree, 3).lost("from the future", 2), {});
  EXPECT_EQ(diagnostics.of(Loss::kUnseenFree), 3u);
  EXPECT_EQ(diagnostics.of(Loss::kOther), 2u);
}

// Against the obvious model: a std::map of live blocks.
TEST(Ledger, AgreesWithAMapOverRandomStreams) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    Diagnostics diagnostics;
    Ledger ledger(diagnostics);
    std::map<std::uint64_t, std::int64_t> model;
    std::int64_t sum = 0;
    for (int i = 0; i < 20'000; ++i) {
      const std::uint64_t id = random() % 3000 * (seed % 2 == 0 ? 1 : 0x10000);
      const auto bytes = static_cast<std::int64_t>(random() % 100'000);
      switch (random() % 5) {
        case 0:
        case 1: {
          const bool fresh = model.try_emplace(id, bytes).second;
          if (fresh) sum += bytes;
          const Block* block =
              ledger.on(Alloc{BlockId(id), Bytes(bytes), {}, {}, {}, {}}, Birth{}, {}, {});
          ASSERT_EQ(block != nullptr, fresh);
          break;
        }
        case 2:
        case 3: {
          const auto found = model.find(id);
          const Block* block = ledger.on(Free{BlockId(id)});
          ASSERT_EQ(block != nullptr, found != model.end());
          if (found == model.end()) break;
          ASSERT_EQ(block->bytes.raw(), found->second);
          sum -= found->second;
          model.erase(found);
          break;
        }
        default: {
          const auto found = model.find(id);
          const Block* before = ledger.on(Resize{BlockId(id), Bytes(bytes)}, 0);
          ASSERT_EQ(before != nullptr, found != model.end());
          if (found == model.end()) break;
          sum += bytes - found->second;
          found->second = bytes;
        }
      }
      ASSERT_EQ(ledger.totals(DeviceId{}).allocated.raw(), sum);
      ASSERT_EQ(ledger.live_count(), model.size());
    }
  }
}

}  // namespace
}  // namespace peakline
