#include <gtest/gtest.h>

#include <peakline/advice.h>

#include "import_support.h"
#include "trace_builder.h"

namespace peakline::testing {
namespace {

// A model with its optimizer: 100 MiB that stay, and a step whose foreach op holds `temporary`.
TraceBuilder trained(std::string_view op, Bytes temporary, bool kept = false) {
  TraceBuilder run;
  run.info("torch", "2.13.0").alloc("parameters", 100_MiB);
  for (int step = 0; step < 2; ++step) {
    run.phase_begin(Phase::kOptimizer).op(op).alloc("sums", temporary).op_end();
    if (!kept) run.free("sums");
    run.phase_end(Phase::kOptimizer).step();
    if (kept) break;
  }
  return run;
}

std::vector<Saving> advice_for(TraceBuilder& run, const AdviceOptions& options = {}) {
  const std::vector<std::byte> file = run.bytes();
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const SourceOpener open = [text]() -> Result<std::unique_ptr<Source>> { return source_of(text); };
  const Result<std::vector<Saving>> found = advise(open, options);
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.ok() ? *found : std::vector<Saving>{};
}

TEST(Advice, TemporariesOfAForeachOptimizerAreWhatFusingSaves) {
  TraceBuilder run = trained("aten::_foreach_sqrt", 40_MiB);
  run.info("fusable_optimizers", "AdamW");
  const std::vector<Saving> found = advice_for(run);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].what, "fused AdamW");
  EXPECT_EQ(found[0].command, "torch.optim.AdamW(..., fused=True)");
  EXPECT_EQ(found[0].before, 140_MiB);
  EXPECT_EQ(found[0].after, 100_MiB);
}

TEST(Advice, WhatOutlivesTheStepIsStateAndNotSaved) {
  TraceBuilder run = trained("aten::_foreach_sqrt", 40_MiB, true);
  run.info("fusable_optimizers", "AdamW");
  EXPECT_TRUE(advice_for(run).empty());
}

TEST(Advice, AnOptimizerThatIsFusedOrCannotBeIsNotAdvised) {
  TraceBuilder run = trained("aten::_foreach_sqrt", 40_MiB);
  EXPECT_TRUE(advice_for(run).empty());
}

TEST(Advice, OtherOpsOfTheOptimizerAreNotItsTemporaries) {
  TraceBuilder run = trained("aten::mul", 40_MiB);
  run.info("fusable_optimizers", "AdamW");
  EXPECT_TRUE(advice_for(run).empty());
}

TEST(Advice, SegmentsThatGrowAreAdvisedWhereTheyLeaveFewerHoles) {
  TraceBuilder run;
  run.info("torch", "2.13.0");
  for (const char* name : {"a", "b", "c", "d"}) run.alloc(name, 100_MiB);
  run.free("b").free("d").alloc("e", 60_MiB).alloc("f", 60_MiB).alloc("g", 150_MiB);
  const std::vector<Saving> found = advice_for(run);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].command, "PYTORCH_ALLOC_CONF=expandable_segments:True");
  EXPECT_LT(found[0].after, found[0].before);
  run.info("allocator_conf", "expandable_segments:True");
  EXPECT_TRUE(advice_for(run).empty()) << "a setting that is on is not advised";
}

TEST(Advice, WhereTheSimulationReservesOtherwiseThanTheRunNothingIsProven) {
  TraceBuilder run = trained("aten::_foreach_sqrt", 40_MiB);
  run.info("fusable_optimizers", "AdamW").reserved(200_MiB);
  EXPECT_TRUE(advice_for(run).empty());
  TraceBuilder same = trained("aten::_foreach_sqrt", 40_MiB);
  same.info("fusable_optimizers", "AdamW").reserved(140_MiB);
  EXPECT_EQ(advice_for(same).size(), 1U);
}

TEST(Advice, ALongRecordingIsNotPlayedAgain) {
  TraceBuilder run = trained("aten::_foreach_sqrt", 40_MiB);
  run.info("fusable_optimizers", "AdamW");
  EXPECT_TRUE(advice_for(run, {.most_events = 3}).empty());
}

TEST(Advice, ARecordingOfTheHostAloneHasNone) {
  TraceBuilder run;
  run.device("cpu").info("fusable_optimizers", "AdamW").alloc("a", 4_MiB);
  EXPECT_TRUE(advice_for(run).empty());
}

}  // namespace
}  // namespace peakline::testing
