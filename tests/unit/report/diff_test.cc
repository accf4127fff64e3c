#include <gtest/gtest.h>

#include <peakline/diff.h>

#include "read_trace.h"
#include "trace_builder.h"

namespace peakline {
namespace {

using testing::TraceBuilder;

Summary summary_of(const TraceBuilder& trace) {
  const std::vector<std::byte> bytes = trace.bytes();
  Result<TraceReader> reader = TraceReader::open(make_memory_source(bytes));
  EXPECT_TRUE(reader.ok());
  Result<Summary> summary = summarize(*reader);
  EXPECT_TRUE(summary.ok());
  return std::move(*summary);
}

TraceBuilder model(Bytes activation, std::string_view wrapper = "") {
  TraceBuilder trace;
  for (const char* layer : {"Net.layers.0", "Net.layers.1"}) {
    const std::string path = std::string(layer) + std::string(wrapper);
    trace.alloc(path + ".w", 8_MiB).label(path + ".w", category::kParameter, path);
    trace.enter(path).op("aten::mm").alloc(path + ".a", activation).op_end().leave(path);
    trace.label(path + ".a", category::kActivation, path);
  }
  trace.alloc("loose", 1_MiB);
  return trace;
}

RunDiff diff_of(const TraceBuilder& before, const TraceBuilder& after) {
  return diff_runs(facts_of(summary_of(before)), facts_of(summary_of(after)));
}

Bytes sum(const std::vector<Change>& changes) {
  Bytes total;
  for (const Change& change : changes) total += change.grown();
  return total;
}

TEST(Diff, EveryListSumsToTheChangeOfThePeak) {
  const RunDiff diff = diff_of(model(4_MiB), model(16_MiB));
  EXPECT_EQ(diff.allocated.grown(), 24_MiB);
  EXPECT_EQ(sum(diff.categories), 24_MiB);
  EXPECT_EQ(sum(diff.modules), 24_MiB);
  EXPECT_EQ(sum(diff.module_groups), 24_MiB);
  EXPECT_EQ(sum(diff.ops), 24_MiB);
}

TEST(Diff, NumberedSiblingsAreOneGroup) {
  const RunDiff diff = diff_of(model(4_MiB), model(16_MiB));
  ASSERT_EQ(diff.module_groups.size(), 1u);
  EXPECT_EQ(diff.module_groups[0].name, "Net.layers.*");
  EXPECT_EQ(diff.module_groups[0].members, 2u);
  EXPECT_EQ(diff.module_groups[0].grown(), 24_MiB);
  EXPECT_EQ(diff.modules.size(), 2u);
}

TEST(Diff, EqualRunsHaveNoRows) {
  const RunDiff diff = diff_of(model(4_MiB), model(4_MiB));
  EXPECT_EQ(diff.allocated.grown(), Bytes{});
  EXPECT_TRUE(diff.categories.empty());
  EXPECT_TRUE(diff.modules.empty());
  EXPECT_TRUE(diff.ops.empty());
}

TEST(Diff, AWrappedModuleMatchesItsBareSelf) {
  const RunDiff diff = diff_of(model(4_MiB), model(4_MiB, "._checkpoint_wrapped_module"));
  EXPECT_TRUE(diff.modules.empty());
}

TEST(Diff, WhatIsNewAndWhatIsGoneAreBothNamed) {
  TraceBuilder before;
  before.enter("Old").alloc("a", 3_MiB).leave("Old");
  TraceBuilder after;
  after.enter("New").alloc("a", 5_MiB).leave("New");
  const RunDiff diff = diff_of(before, after);
  ASSERT_EQ(diff.modules.size(), 2u);
  EXPECT_EQ(diff.modules[0].name, "New");
  EXPECT_EQ(diff.modules[0].before, Bytes{});
  EXPECT_EQ(diff.modules[1].name, "Old");
  EXPECT_EQ(diff.modules[1].after, Bytes{});
}

TEST(Diff, LinesWithoutTheirTextMatchByTheirNumber) {
  const auto with_lines = [](std::vector<NamedBytes> lines) {
    RunFacts facts = facts_of(summary_of(model(4_MiB)));
    facts.lines = std::move(lines);
    return facts;
  };
  const RunFacts told = with_lines({{"a.py:3 f: x = 1", 4_MiB}, {"a.py:9 f: y = 2", 2_MiB}});
  const RunFacts untold = with_lines({{"a.py:3 f", 4_MiB}, {"a.py:9 f", 5_MiB}});
  for (const bool back : {false, true}) {
    const RunDiff diff = back ? diff_runs(untold, told) : diff_runs(told, untold);
    ASSERT_EQ(diff.lines.size(), 1u);
    EXPECT_EQ(diff.lines[0].name, back ? "a.py:9 f: y = 2" : "a.py:9 f");
  }
}

TEST(Diff, ReservedIsComparedOnlyWhenBothKnowIt) {
  TraceBuilder knows = model(4_MiB);
  knows.segment_alloc(1 << 20, 64_MiB);
  EXPECT_FALSE(diff_of(model(4_MiB), knows).reserved.has_value());
  const RunDiff diff = diff_of(knows, knows);
  ASSERT_TRUE(diff.reserved.has_value());
  EXPECT_EQ(diff.reserved->grown(), Bytes{});
}

TEST(Facts, SurviveTheWayThroughTheBaselineFile) {
  const RunFacts facts = facts_of(summary_of(model(4_MiB)));
  const Result<RunFacts> read = facts_from_json(facts_to_json(facts), "base.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  const RunDiff diff = diff_runs(facts, *read);
  EXPECT_EQ(diff.allocated.grown(), Bytes{});
  EXPECT_TRUE(diff.categories.empty());
  EXPECT_TRUE(diff.modules.empty());
  EXPECT_TRUE(diff.ops.empty());
}

TEST(Facts, TheJsonOfShowIsABaselineToo) {
  const Summary summary = summary_of(model(4_MiB));
  const Result<RunFacts> read = facts_from_json(summary_to_json(summary), "show.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  const RunDiff diff = diff_runs(facts_of(summary), *read);
  EXPECT_TRUE(diff.categories.empty());
  EXPECT_TRUE(diff.modules.empty());
  EXPECT_TRUE(diff.ops.empty());
}

TEST(Facts, WhatIsNoBaselineIsRefusedInOneSentence) {
  for (const char* text :
       {"", "[]", "{}", "{\"peak_allocated\": \"much\"}", "{\"peak_allocated\": 1, \"modules\": 3}",
        "{\"peak_allocated\": 1, \"modules\": [{\"path\": 4, \"own\": 1}]}",
        "{\"peak_allocated\": 1, \"ops\": {\"a\": 1.5}}"}) {
    const Result<RunFacts> read = facts_from_json(text, "base.json");
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_NE(read.status().message().find("'base.json' is no baseline"), std::string::npos);
  }
}

}  // namespace
}  // namespace peakline
