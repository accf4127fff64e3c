// What a block was for, read off its whole life. Each test puts a block into the peak and asks.
#include <gtest/gtest.h>

#include "ledger/peak.h"
#include "replayed.h"

namespace peakline {
namespace {

using testing::TraceBuilder;

// The category of the peak, all of whose bytes are expected to be of one.
std::string category_at_peak(const TraceBuilder& trace) {
  PeakPass peak;
  testing::play(trace, {&peak});
  const std::vector<Held>& held = peak.peaks().at(0).held;
  std::string names;
  for (const Held& block : held) {
    if (!names.empty()) names += "+";
    names += trace.dictionary().category_label(block.category);
  }
  return names;
}

TEST(Lifetime, WhatForwardLeavesForBackwardIsActivation) {
  TraceBuilder trace;
  trace.enter("Net").alloc("a", 1_MiB).leave("Net");
  trace.phase_begin(Phase::kBackward).free("a").phase_end(Phase::kBackward);
  EXPECT_EQ(category_at_peak(trace), "Activation");
}

TEST(Lifetime, WhatDiesBeforeBackwardIsTemp) {
  TraceBuilder trace;
  trace.enter("Net").alloc("a", 1_MiB).free("a").leave("Net");
  trace.phase_begin(Phase::kBackward).phase_end(Phase::kBackward);
  EXPECT_EQ(category_at_peak(trace), "Temp");
}

TEST(Lifetime, BackwardOfAModuleCountsAsBackwardWhenNoPhaseIsTold) {
  TraceBuilder trace;
  trace.enter("Net").alloc("a", 1_MiB).leave("Net").backward("Net").free("a").backward_end("Net");
  EXPECT_EQ(category_at_peak(trace), "Activation");
}

TEST(Lifetime, LossComputedOutsideTheModelIsActivation) {
  TraceBuilder trace;
  trace.enter("Net").leave("Net").op("aten::log_softmax").alloc("a", 1_MiB).op_end();
  trace.phase_begin(Phase::kBackward).free("a").phase_end(Phase::kBackward);
  EXPECT_EQ(category_at_peak(trace), "Activation");
}

TEST(Lifetime, WhatIsMadeBeforeTheModelRunsInAStepIsInput) {
  TraceBuilder trace;
  trace.enter("Net").leave("Net").phase_begin(Phase::kBackward).phase_end(Phase::kBackward).step();
  trace.alloc("batch", 1_MiB).enter("Net").leave("Net");
  trace.phase_begin(Phase::kBackward).phase_end(Phase::kBackward).free("batch");
  EXPECT_EQ(category_at_peak(trace), "Input");
}

TEST(Lifetime, WhatIsBornAndDiesInsideOneOpIsWorkspace) {
  TraceBuilder trace;
  trace.op("aten::mm").op("aten::empty").alloc("a", 1_MiB).op_end().free("a").op_end();
  EXPECT_EQ(category_at_peak(trace), "Workspace");
}

TEST(Lifetime, WhatOutlivesTheOpThatMadeItIsNotWorkspace) {
  TraceBuilder trace;
  trace.op("aten::matmul").op("aten::expand").alloc("a", 1_MiB).op_end().free("a").op_end();
  EXPECT_EQ(category_at_peak(trace), "Temp");
}

TEST(Lifetime, WhatRecomputeLeavesIsActivationOfTheRecomputingModule) {
  TraceBuilder trace;
  trace.phase_begin(Phase::kBackward)
      .recompute("Net.block")
      .enter("Net.block.fc", ModulePass::kRecompute);
  trace.alloc("a", 1_MiB).leave("Net.block.fc", ModulePass::kRecompute).recompute_end("Net.block");
  trace.free("a").phase_end(Phase::kBackward);
  EXPECT_EQ(category_at_peak(trace), "Activation");
  PeakPass peak;
  testing::play(trace, {&peak});
  EXPECT_EQ(trace.dictionary().module(peak.peaks()[0].held[0].module).path, "Net.block.fc");
}

TEST(Lifetime, WhatDiesInsideRecomputeIsTemp) {
  TraceBuilder trace;
  trace.phase_begin(Phase::kBackward).recompute("Net").alloc("a", 1_MiB).free("a");
  trace.recompute_end("Net").phase_end(Phase::kBackward);
  EXPECT_EQ(category_at_peak(trace), "Temp");
}

TEST(Lifetime, ARecomputeIsOverThoughABackwardInsideItIsStillInAModule) {
  TraceBuilder trace;
  trace.phase_begin(Phase::kBackward).recompute("Net").enter("Net.a", ModulePass::kBackward);
  trace.recompute_end("Net").alloc("a", 1_MiB).leave("Net.a", ModulePass::kBackward);
  trace.phase_end(Phase::kBackward).free("a");
  EXPECT_EQ(category_at_peak(trace), "Gradient");
}

TEST(Lifetime, WhatDiesInsideBackwardIsTempAndWhatOutlivesItIsGradient) {
  TraceBuilder dies;
  dies.phase_begin(Phase::kBackward).alloc("a", 1_MiB).free("a").phase_end(Phase::kBackward);
  EXPECT_EQ(category_at_peak(dies), "Temp");
  TraceBuilder lives;
  lives.phase_begin(Phase::kBackward).alloc("a", 1_MiB).phase_end(Phase::kBackward).free("a");
  EXPECT_EQ(category_at_peak(lives), "Gradient");
}

TEST(Lifetime, WhatOutlivesTheOptimizerIsOptstate) {
  TraceBuilder trace;
  trace.phase_begin(Phase::kOptimizer).alloc("a", 1_MiB).phase_end(Phase::kOptimizer).step();
  EXPECT_EQ(category_at_peak(trace), "Optstate");
  TraceBuilder dies;
  dies.phase_begin(Phase::kOptimizer).alloc("a", 1_MiB).free("a").phase_end(Phase::kOptimizer);
  EXPECT_EQ(category_at_peak(dies), "Temp");
}

TEST(Lifetime, WhatForwardMadeAndStepsKeepIsOther) {
  TraceBuilder trace;
  trace.enter("Net").alloc("cache", 1_MiB).leave("Net");
  for (int i = 0; i < 3; ++i) {
    trace.phase_begin(Phase::kBackward).phase_end(Phase::kBackward).step();
  }
  EXPECT_EQ(category_at_peak(trace), "Other");
}

// A checkpoint that is read after an evaluation and kept: no op computed it, so it is no result that a
// backward needs.
TEST(Lifetime, WhatIsOnlyAllocatedOutsideOfTheModelAndOutlivesItsStepIsOther) {
  for (const char* op : {"aten::empty", "aten::empty_strided", ""}) {
    TraceBuilder trace;
    trace.enter("Net").op("aten::mm").op_end().leave("Net");  // the evaluation
    if (*op != 0) trace.op(op);
    trace.alloc("loaded", 1_MiB);
    if (*op != 0) trace.op_end();
    trace.enter("Net").leave("Net");
    trace.phase_begin(Phase::kBackward).phase_end(Phase::kBackward).step();
    EXPECT_EQ(category_at_peak(trace), "Other") << op;
  }
}

TEST(Lifetime, AFunctionOutsideOfTheModelMayAllocateItsResultItself) {
  TraceBuilder trace;
  trace.enter("Net").leave("Net").op("aten::empty").alloc("logits", 1_MiB).op_end();
  trace.phase_begin(Phase::kBackward).free("logits").phase_end(Phase::kBackward).step();
  EXPECT_EQ(category_at_peak(trace), "Activation");
}

TEST(Lifetime, ALossThatIsKeptIntoTheNextStepIsActivation) {
  TraceBuilder trace;
  trace.enter("Net").leave("Net").op("aten::sum").alloc("loss", 1_MiB).op_end();
  trace.phase_begin(Phase::kBackward).phase_end(Phase::kBackward).step();
  trace.enter("Net").leave("Net").free("loss");
  EXPECT_EQ(category_at_peak(trace), "Activation");
}

TEST(Lifetime, WhereOpsWereLeftOutAllocationsSayNothing) {
  TraceBuilder trace;
  trace.enter("Net").leave("Net").alloc("loss", 1_MiB);
  trace.phase_begin(Phase::kBackward).phase_end(Phase::kBackward).step().free("loss");
  EXPECT_EQ(category_at_peak(trace), "Activation");
}

TEST(Lifetime, WhatAMatrixProductMadeAndStepsKeepIsItsLibrarysWorkspace) {
  TraceBuilder trace;
  trace.phase_begin(Phase::kBackward).op("aten::mm").alloc("kept", 1_MiB).op_end();
  trace.phase_end(Phase::kBackward).step().step().step();
  EXPECT_EQ(category_at_peak(trace), "Workspace");
}

TEST(Lifetime, ALabelHoldsForTheWholeLifeEvenWhenItComesAfterThePeak) {
  TraceBuilder trace;
  trace.phase_begin(Phase::kBackward).alloc("a", 1_MiB).phase_end(Phase::kBackward);
  trace.label("a", category::kShardedGradient);
  EXPECT_EQ(category_at_peak(trace), "Gradient / Sharded");
}

TEST(Lifetime, WhatAForwardLeftBehindAtTheEndOfTheRecordingIsActivation) {
  EXPECT_EQ(category_at_peak(TraceBuilder{}.enter("Net").alloc("a", 1_MiB).leave("Net")),
            "Activation");
  EXPECT_EQ(category_at_peak(TraceBuilder{}.alloc("a", 1_MiB)), "Other");
}

TEST(Lifetime, WhatAModuleHandsOnWithoutABackwardIsActivationAndWhatItKeepsToItselfIsTemp) {
  TraceBuilder handed_on;
  handed_on.enter("Net").enter("Net.fc").alloc("a", 1_MiB).leave("Net.fc").free("a").leave("Net");
  EXPECT_EQ(category_at_peak(handed_on), "Activation");
  TraceBuilder kept;
  kept.enter("Net").alloc("a", 1_MiB).enter("Net.fc").leave("Net.fc").free("a").leave("Net");
  EXPECT_EQ(category_at_peak(kept), "Temp");
}

TEST(Lifetime, WhatForwardHeldWhenMemoryRanOutIsActivationThoughUnwindingFreesIt) {
  TraceBuilder trace;
  trace.enter("Net").alloc("a", 1_MiB).oom(4_MiB).free("a").leave("Net");
  EXPECT_EQ(category_at_peak(trace), "Activation");
}

TEST(Lifetime, WithoutAnyModuleNoForwardWasCutOffByAFailure) {
  TraceBuilder trace;
  trace.alloc("a", 1_MiB).oom(4_MiB).free("a");
  EXPECT_EQ(category_at_peak(trace), "Temp");
}

TEST(Lifetime, AClosureOfTheOptimizerRunsForwardAndBackward) {
  TraceBuilder trace;
  trace.phase_begin(Phase::kOptimizer).phase_begin(Phase::kForward);
  trace.enter("Net").alloc("a", 1_MiB).leave("Net").alloc("loss", 1_KiB);
  trace.phase_begin(Phase::kBackward).free("a").free("loss").phase_end(Phase::kBackward);
  trace.phase_end(Phase::kForward).phase_end(Phase::kOptimizer).step();
  EXPECT_EQ(category_at_peak(trace), "Activation+Activation");
  TraceBuilder gradient;
  gradient.phase_begin(Phase::kOptimizer).phase_begin(Phase::kBackward).alloc("g", 1_MiB);
  gradient.phase_end(Phase::kBackward).phase_end(Phase::kOptimizer).step();
  EXPECT_EQ(category_at_peak(gradient), "Gradient");
}

TEST(Lifetime, AModelThatAnOptimizerCallsWithoutAClosureIsForward) {
  TraceBuilder trace;
  trace.phase_begin(Phase::kOptimizer).enter("Net").alloc("a", 1_MiB).leave("Net");
  trace.phase_begin(Phase::kBackward).free("a").phase_end(Phase::kBackward);
  trace.phase_end(Phase::kOptimizer).step();
  EXPECT_EQ(category_at_peak(trace), "Activation");
}

}  // namespace
}  // namespace peakline
