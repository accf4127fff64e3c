#include "ledger/module_spans.h"

#include <gtest/gtest.h>

#include "replayed.h"

namespace peakline {
namespace {

using testing::TraceBuilder;

ModuleSpan span(TraceBuilder& trace, const ModuleSpansPass& pass, std::string_view path,
                ModulePass way = ModulePass::kForward) {
  const auto* spans = pass.spans(DeviceId{}, trace.module_id(path));
  return spans == nullptr ? ModuleSpan{} : (*spans)[static_cast<std::size_t>(way)];
}

TEST(MaxSince, AnswersForAnyStart) {
  MaxSince max;
  max.add(1, 5_B);
  max.add(3, 9_B);
  max.add(4, 2_B);
  max.add(6, 4_B);
  EXPECT_EQ(max.since(0), 9_B);
  EXPECT_EQ(max.since(3), 9_B);
  EXPECT_EQ(max.since(4), 4_B);
  EXPECT_EQ(max.since(7), 0_B);
}

TEST(ModuleSpans, HoldTotalsAtTheBoundariesAndThePeakBetween) {
  TraceBuilder trace;
  trace.alloc("w", 1_MiB).enter("Net").alloc("t", 8_MiB).free("t").alloc("out", 2_MiB).leave("Net");
  trace.alloc("later", 100_MiB);
  ModuleSpansPass pass;
  testing::play(trace, {&pass});
  const ModuleSpan net = span(trace, pass, "Net");
  EXPECT_EQ(net.at_enter, 1_MiB);
  EXPECT_EQ(net.peak, 9_MiB);
  EXPECT_EQ(net.at_leave, 3_MiB);
  EXPECT_EQ(net.calls, 1u);
}

TEST(ModuleSpans, InnerPeakCountsForTheOuterModuleButNotForASibling) {
  TraceBuilder trace;
  trace.enter("Net").enter("Net.a").alloc("t", 8_MiB).free("t").leave("Net.a");
  trace.enter("Net.b").alloc("u", 2_MiB).leave("Net.b").leave("Net");
  ModuleSpansPass pass;
  testing::play(trace, {&pass});
  EXPECT_EQ(span(trace, pass, "Net").peak, 8_MiB);
  EXPECT_EQ(span(trace, pass, "Net.b").peak, 2_MiB);
}

TEST(ModuleSpans, KeepTheLatestCallAndTheHighestOfAll) {
  TraceBuilder trace;
  trace.enter("Net").alloc("t", 8_MiB).free("t").leave("Net");
  trace.enter("Net").alloc("t", 2_MiB).free("t").leave("Net");
  ModuleSpansPass pass;
  testing::play(trace, {&pass});
  const ModuleSpan net = span(trace, pass, "Net");
  EXPECT_EQ(net.calls, 2u);
  EXPECT_EQ(net.peak, 2_MiB);
  EXPECT_EQ(net.highest_peak, 8_MiB);
}

TEST(ModuleSpans, BackwardModulesMayOverlap) {
  TraceBuilder trace;
  trace.backward("Net").backward("Net.a").alloc("t", 4_MiB);
  trace.backward_end("Net").free("t").alloc("u", 6_MiB).backward_end("Net.a");
  ModuleSpansPass pass;
  const Diagnostics diagnostics = testing::play(trace, {&pass});
  EXPECT_EQ(span(trace, pass, "Net", ModulePass::kBackward).peak, 4_MiB);
  EXPECT_EQ(span(trace, pass, "Net.a", ModulePass::kBackward).peak, 6_MiB);
  EXPECT_TRUE(diagnostics.empty());
}

TEST(ModuleSpans, ABackwardInsideACallMayStayInAModuleLongerThanTheCall) {
  TraceBuilder trace;
  trace.phase_begin(Phase::kBackward).recompute("Net");
  trace.phase_begin(Phase::kBackward).enter("Net.a", ModulePass::kBackward);
  trace.phase_end(Phase::kBackward).recompute_end("Net");
  trace.alloc("t", 4_MiB).free("t").leave("Net.a", ModulePass::kBackward);
  trace.phase_end(Phase::kBackward);
  ModuleSpansPass pass;
  const Diagnostics diagnostics = testing::play(trace, {&pass});
  EXPECT_TRUE(diagnostics.empty());
  EXPECT_EQ(span(trace, pass, "Net.a", ModulePass::kBackward).peak, 4_MiB);
}

TEST(ModuleSpans, AModuleLeftByAnExceptionIsClosedWithItsCaller) {
  TraceBuilder trace;
  trace.enter("Net").enter("Net.a").alloc("t", 4_MiB).leave("Net");
  trace.enter("Net").leave("Net");
  ModuleSpansPass pass;
  const Diagnostics diagnostics = testing::play(trace, {&pass});
  EXPECT_EQ(diagnostics.of(Loss::kModuleNeverLeft), 1u);
  EXPECT_EQ(span(trace, pass, "Net.a").calls, 1u);
  EXPECT_EQ(span(trace, pass, "Net").calls, 2u);
}

}  // namespace
}  // namespace peakline
