#include <gtest/gtest.h>

#include <algorithm>

#include <peakline/advice.h>
#include <peakline/category.h>

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

// Two steps of a model whose gradients are freed where `zero` says.
enum class Zero { kAfterForward, kAfterStep, kNever };
TraceBuilder with_gradients(Zero zero) {
  TraceBuilder run;
  run.info("torch", "2.13.0").alloc("parameters", 100_MiB);
  for (const std::string step : {"0", "1"}) {
    run.alloc("first" + step, 100_MiB).alloc("second" + step, 100_MiB);
    if (zero == Zero::kAfterForward && step == "1") run.free("gradients0");
    run.phase_begin(Phase::kBackward).free("first" + step).free("second" + step);
    if (zero != Zero::kNever || step == "0") run.alloc("gradients" + step, 100_MiB);
    run.phase_end(Phase::kBackward).phase_begin(Phase::kOptimizer);
    if (step == "0") run.label("gradients0", category::kGradient);
    run.phase_end(Phase::kOptimizer).step();
    if (zero == Zero::kAfterStep) run.free("gradients" + step);
  }
  return run;
}

const Saving* find(const std::vector<Saving>& savings, std::string_view what) {
  const auto found = std::ranges::find_if(
      savings, [&](const Saving& one) { return one.what.find(what) != std::string::npos; });
  return found == savings.end() ? nullptr : &*found;
}

TEST(Advice, GradientsThatOutliveTheStepIntoForwardAreWhatZeroingEarlierSaves) {
  TraceBuilder run = with_gradients(Zero::kAfterForward);
  const std::vector<Saving> found = advice_for(run);
  const Saving* saving = find(found, "zero_grad()");
  ASSERT_NE(saving, nullptr);
  EXPECT_EQ(saving->before, 400_MiB);
  EXPECT_EQ(saving->after, 300_MiB);
  TraceBuilder early = with_gradients(Zero::kAfterStep);
  EXPECT_EQ(find(advice_for(early), "zero_grad()"), nullptr);
}

TEST(Advice, GradientsToWhichTheNextAreAddedCannotBeFreedBefore) {
  TraceBuilder run = with_gradients(Zero::kNever);
  const std::vector<Saving> found = advice_for(run);
  EXPECT_EQ(find(found, "zero_grad()"), nullptr);
  EXPECT_EQ(find(found, "in backward"), nullptr);
}

// Four layers, each with a gradient that lives until the optimizer has stepped.
TraceBuilder in_layers(std::string_view between = "") {
  TraceBuilder run;
  run.info("torch", "2.13.0").alloc("parameters", 40_MiB).phase_begin(Phase::kBackward);
  for (const std::string layer : {"3", "2", "1", "0"}) {
    run.backward("Model." + layer).alloc("gradient" + layer, 40_MiB);
    run.backward_end("Model." + layer);
  }
  run.phase_end(Phase::kBackward);
  if (!between.empty()) run.op(between).op_end();
  run.phase_begin(Phase::kOptimizer);
  for (const std::string layer : {"0", "1", "2", "3"}) {
    run.label("gradient" + layer, category::kGradient);
  }
  return std::move(run.phase_end(Phase::kOptimizer).step());
}

TEST(Advice, WithTheOptimizerInBackwardOneGradientIsThereAtATime) {
  TraceBuilder run = in_layers();
  const std::vector<Saving> found = advice_for(run);
  const Saving* saving = find(found, "in backward");
  ASSERT_NE(saving, nullptr);
  EXPECT_EQ(saving->before, 200_MiB);
  EXPECT_EQ(saving->after, 120_MiB);  // parameters, a gradient, and a temporary as large
}

TEST(Advice, GradientsThatAreClippedTogetherMustAllBeThere) {
  TraceBuilder run = in_layers("aten::_foreach_norm");
  EXPECT_EQ(find(advice_for(run), "in backward"), nullptr);
}

// A model of two layers. Each makes `inside`, which backward needs, and its result.
TraceBuilder layered(bool recomputes = false, const std::string& list = "Net.layers") {
  TraceBuilder run;
  run.info("torch", "2.13.0").module("Net", "Net").module(list, "ModuleList");
  const std::string first = list + ".0", second = list + ".1";
  for (const std::string& layer : {first, second}) {
    run.module(layer, "Block").module(layer + ".up", "Linear");
  }
  for (const std::string& layer : {first, second}) {
    run.enter(layer).op("aten::mm").alloc(layer + "inside", 100_MiB).op_end();
    run.op("aten::gelu").alloc(layer + "temporary", 20_MiB).free(layer + "temporary").op_end();
    run.op("aten::add").alloc(layer + "result", 20_MiB).op_end().leave(layer);
  }
  run.phase_begin(Phase::kBackward);
  for (const std::string& layer : {second, first}) {
    run.backward(layer);
    if (recomputes) run.recompute(layer).recompute_end(layer);
    run.free(layer + "inside").free(layer + "result").backward_end(layer);
  }
  return std::move(run.phase_end(Phase::kBackward).step());
}

TEST(Advice, LayersThatAreRecomputedKeepTheirResultsAlone) {
  TraceBuilder run = layered();
  const std::vector<Saving> found = advice_for(run);
  const Saving* saving = find(found, "recomputing");
  ASSERT_NE(saving, nullptr);
  EXPECT_EQ(saving->what, "recomputing layers.{0..1}");
  EXPECT_NE(saving->command.find(R"("modules": ["layers.{0..1}"])"), std::string::npos);
  EXPECT_EQ(saving->before, 240_MiB);
  // Both results, what is inside of one layer, and its result, which may be needed once more.
  EXPECT_EQ(saving->after, 160_MiB);
}

TEST(Advice, LayersAreNamedAsTheScriptsFirstVariableThatHasThemAllDoes) {
  TraceBuilder run = layered();
  run.info("script_models",
           "one\tafter line 9 of train.py\tNet.layers.0\n"
           "net.inner\tafter line 8 of train.py\tNet.layers\n"
           "net\tafter line 7 of train.py\tNet");
  const std::vector<Saving> found = advice_for(run);
  const Saving* saving = find(found, "recomputing");
  ASSERT_NE(saving, nullptr);
  EXPECT_EQ(
      saving->command,
      R"(import peakline; peakline.checkpoint(net.inner, {"schema_version": 1, "activations": )"
      R"([{"modules": ["{0..1}"], "policy": "recompute"}]})  # after line 8 of train.py)");
}

TEST(Advice, WhereTheScriptHasNoVariableOfTheLayersTheModelHasItsUsualName) {
  for (const char* variables : {"", "\t\t\n\n", "one\t\tNet.layers.0", "x\tNet", "x\t\tNe\n\t"}) {
    TraceBuilder run = layered();
    run.info("script_models", variables);
    const std::vector<Saving> found = advice_for(run);
    const Saving* saving = find(found, "recomputing");
    ASSERT_NE(saving, nullptr) << variables;
    EXPECT_TRUE(saving->command.starts_with("import peakline; peakline.checkpoint(model, "))
        << variables;
    EXPECT_NE(saving->command.find(R"("modules": ["layers.{0..1}"])"), std::string::npos);
  }
}

TEST(Advice, ARecordingPutsNoCodeIntoALineToPaste) {
  TraceBuilder run = layered();
  run.info("script_models", "net, exit()\tafter line 8 of train.py\tNet\nnet\t\rexit()\tNet");
  run.info("script_optimizer", "net\texit()\tafter line 8 of train.py");
  for (const Saving& saving : advice_for(run)) {
    EXPECT_EQ(saving.command.find("exit"), std::string::npos) << saving.command;
  }
}

TEST(Advice, LayersWhoseNamesEndAQuotedTextAreNotNamed) {
  TraceBuilder usual = layered();
  EXPECT_NE(find(advice_for(usual), "recomputing"), nullptr);
  TraceBuilder odd = layered(false, R"(Net."]), exit(0, [")");
  EXPECT_EQ(find(advice_for(odd), "recomputing"), nullptr);
}

TEST(Advice, TheOptimizerIsCalledAsTheScriptCallsIt) {
  TraceBuilder run = in_layers();
  run.info("script_models", "net\tafter line 7 of train.py\tModel");
  run.info("script_optimizer", "self.net\tself.adam\tafter line 12 of train.py");
  const std::vector<Saving> found = advice_for(run);
  const Saving* saving = find(found, "in backward");
  ASSERT_NE(saving, nullptr);
  EXPECT_EQ(
      saving->command,
      R"(import peakline; peakline.checkpoint(self.net, {"schema_version": 1, "optimizer": {"in_backward": True}}, )"
      "self.adam)  # after line 12 of train.py");
}

TEST(Advice, WhoRecomputesAlreadyIsNotToldTo) {
  TraceBuilder run = layered(true);
  EXPECT_EQ(find(advice_for(run), "recomputing"), nullptr);
}

TEST(Advice, ALayerThatNoBackwardFollowsIsNotRecomputed) {
  TraceBuilder run;
  run.info("torch", "2.13.0");
  for (const std::string layer : {"Net.0", "Net.1"}) {
    run.module(layer, "Block").module(layer + ".up", "Linear");
    run.enter(layer).op("aten::mm").alloc(layer, 100_MiB).alloc(layer + "b", 90_MiB).op_end();
    run.leave(layer);
  }
  EXPECT_EQ(find(advice_for(run), "recomputing"), nullptr);
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
