#include "ledger/growth.h"

#include <gtest/gtest.h>

#include <string>

#include "replayed.h"

namespace peakline {
namespace {

using testing::TraceBuilder;
using namespace peakline::literals;

std::vector<Growth> growth_of(const TraceBuilder& trace) {
  GrowthPass pass;
  testing::play(trace, {&pass});
  return pass.growing();
}

std::string block(int step) { return "b" + std::to_string(step); }

// `steps` steps, each of which allocates a block at line 1 and then does `then`.
template <class Then>
TraceBuilder run(int steps, Then then) {
  TraceBuilder trace;
  for (int i = 0; i < steps; ++i) {
    trace.at("a.py:1 main").alloc(block(i), 1_MiB);
    then(trace, i);
    trace.step();
  }
  return trace;
}

TEST(Growth, WhatEveryStepKeepsIsFoundByItsLine) {
  const TraceBuilder trace = run(5, [](TraceBuilder&, int) {});
  const std::vector<Growth> found = growth_of(trace);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(trace.dictionary().line(found[0].origin.place.line).line, 1u);
  EXPECT_EQ(found[0].kept, 4_MiB);  // the last step's own is no growth yet
  EXPECT_EQ(found[0].blocks, 4u);
  EXPECT_EQ(found[0].first_step, 2u);
  EXPECT_EQ(found[0].last_step, 5u);
}

TEST(Growth, WhatALibraryTakesOnceIsNotInIt) {
  const TraceBuilder trace = run(5, [](TraceBuilder& first, int i) {
    if (i == 0) first.at("a.py:1 main").alloc("workspace", 32_MiB);
  });
  const std::vector<Growth> found = growth_of(trace);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kept, 4_MiB);
  EXPECT_EQ(found[0].blocks, 4u);
}

TEST(Growth, ThreeStepsAreEnough) {
  EXPECT_EQ(growth_of(run(3, [](TraceBuilder&, int) {})).size(), 1u);
  EXPECT_TRUE(growth_of(run(2, [](TraceBuilder&, int) {})).empty());
}

// As `run`, but the first block comes after the first step: what follows optimizer.step().
template <class Then>
TraceBuilder run_after_step(int steps, Then then) {
  TraceBuilder trace;
  trace.step();
  for (int i = 1; i < steps; ++i) {
    trace.at("a.py:1 main").alloc(block(i), 1_MiB);
    then(trace, i);
    trace.step();
  }
  return trace;
}

bool suspects(const TraceBuilder& trace) {
  GrowthPass pass;
  testing::play(trace, {&pass});
  return pass.suspects(DeviceId{});
}

TEST(Growth, WhatIsKeptAfterTheOptimizersStepIsSuspectedInThreeStepsAndFoundInFour) {
  const auto keep = [](TraceBuilder&, int) {};
  EXPECT_TRUE(growth_of(run_after_step(3, keep)).empty());
  EXPECT_TRUE(suspects(run_after_step(3, keep)));
  EXPECT_EQ(growth_of(run_after_step(4, keep)).size(), 1u);
}

TEST(Growth, TwoBatchesThatTakeTurnsAreSuspectedAndNotFound) {
  const auto take_turns = [](TraceBuilder& trace, int i) {
    if (i > 2) trace.free(block(i - 2));
  };
  EXPECT_TRUE(suspects(run_after_step(3, take_turns)));
  EXPECT_TRUE(growth_of(run_after_step(4, take_turns)).empty());
  EXPECT_FALSE(suspects(run_after_step(4, take_turns)));
}

TEST(Growth, WhatIsReplacedIsNotSuspected) {
  EXPECT_FALSE(suspects(run_after_step(3, [](TraceBuilder& trace, int i) {
    if (i > 1) trace.free(block(i - 1));
  })));
  EXPECT_FALSE(suspects(run(3, [](TraceBuilder& trace, int i) {
    if (i > 1) trace.free(block(i - 2));
  })));
}

TEST(Growth, ACacheOfTwoIsSilentInAShortRun) {
  const auto fill = [](TraceBuilder& trace, int i) {
    if (i >= 2) trace.free(block(i));
  };
  EXPECT_TRUE(growth_of(run(3, fill)).empty());
  EXPECT_TRUE(growth_of(run(4, fill)).empty());
}

TEST(Growth, NamesTheOldestBlocksThatAreAlive) {
  TraceBuilder trace = run(6, [](TraceBuilder&, int) {});
  trace.free(block(0));
  const std::vector<Growth> found = growth_of(trace);
  ASSERT_EQ(found.size(), 1u);
  const std::uint64_t size = (1_MiB).raw();
  ASSERT_EQ(found[0].examples.size(), 5u);
  EXPECT_EQ(found[0].examples[1].raw() - found[0].examples[0].raw(), size);
  EXPECT_EQ(found[0].examples[2].raw() - found[0].examples[1].raw(), size);
}

TEST(Growth, ThreeStepsAreNotEnoughForWhatWeighsNothing) {
  const auto numbers = [](int steps) {
    TraceBuilder trace;
    for (int i = 0; i < steps; ++i) trace.at("a.py:1 main").alloc(block(i), 512_B).step();
    return trace;
  };
  EXPECT_TRUE(growth_of(numbers(3)).empty());
  EXPECT_TRUE(suspects(numbers(3)));
  EXPECT_TRUE(suspects(numbers(4)));
  EXPECT_EQ(growth_of(numbers(5)).size(), 1u);
}

TEST(Growth, WithoutAStackOpAndModuleSayWhere) {
  TraceBuilder trace;
  for (int i = 0; i < 4; ++i) {
    trace.enter("Net").op("aten::mm").alloc(block(i), 1_MiB).op_end().leave("Net").step();
  }
  const std::vector<Growth> found = growth_of(trace);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(trace.dictionary().op(found[0].origin.op), "aten::mm");
}

TEST(Growth, WhatEachStepReplacesDoesNotGrow) {
  EXPECT_TRUE(growth_of(run(6, [](TraceBuilder& trace, int i) {
                if (i > 0) trace.free(block(i - 1));
              })).empty());
}

TEST(Growth, ALargerBatchInThePlaceOfTheLastDoesNotGrow) {
  // Prefetched in the step before the one that uses it, so it is older than the step when that ends.
  TraceBuilder trace;
  for (int i = 0; i < 10; ++i) {
    trace.at("a.py:1 main").alloc(block(i), Bytes(((i % 5) + 1) * (std::int64_t{1} << 20)));
    if (i > 1) trace.free(block(i - 2));
    trace.step();
  }
  EXPECT_TRUE(growth_of(trace).empty());
}

TEST(Growth, ABufferThatIsFullDoesNotGrow) {
  // Four places, and then the oldest gives way.
  EXPECT_TRUE(growth_of(run(9, [](TraceBuilder& trace, int i) {
                if (i >= 4) trace.free(block(i - 4));
              })).empty());
}

TEST(Growth, ACacheThatIsCompleteDoesNotGrow) {
  EXPECT_TRUE(growth_of(run(9, [](TraceBuilder& trace, int i) {
                if (i >= 4) trace.free(block(i));
              })).empty());
}

TEST(Growth, StatesOfAnOptimizerDoNotGrowThoughTheyComeOneByOne) {
  EXPECT_TRUE(growth_of(run(5, [](TraceBuilder& trace, int i) {
                trace.label(block(i), category::kOptstate);
              })).empty());
}

TEST(Growth, WhatRisesEverySecondStepGrowsUntilItIsOverdue) {
  const auto every_second = [](TraceBuilder& trace, int i) {
    if (i % 2 == 1 || i > 8) trace.free(block(i));
  };
  EXPECT_EQ(growth_of(run(9, every_second)).size(), 1u);
  EXPECT_TRUE(growth_of(run(14, every_second)).empty());
}

TEST(Growth, AFallEndsIt) {
  EXPECT_TRUE(growth_of(run(6, [](TraceBuilder& trace, int i) {
                if (i == 5) trace.free(block(0)).free(block(1)).free(block(2));
              })).empty());
}

}  // namespace
}  // namespace peakline
