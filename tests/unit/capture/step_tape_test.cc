#include "capture/step_tape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "capture/block_book.h"

namespace peakline::capture {
namespace {

// A program of ops, and a torch that tells of ops only while they are watched.
class StepTapeTest : public ::testing::Test, private RawEventOutput {
 protected:
  StepTapeTest() { new_tape(); }

  void new_tape() {
    RawEventOutput& out = *this;
    tape_.emplace(out, [this](const ExpectedAllocs* allocs) { expect(allocs); });
  }

  void on(const RawEvent& raw) override {
    note(raw);
    if (raw.kind == RawKind::kStack) text_ += "@" + std::to_string(raw.id) + " ";
    if (raw.kind == RawKind::kNodesMade) {
      text_ += "made" + std::to_string(raw.address) + "@" + std::to_string(raw.id) + " ";
    }
    LiveBlock* block = find(raw);
    const bool comes = raw.kind == RawKind::kAlloc;
    if (block != nullptr && (comes || raw.kind == RawKind::kFree)) blocks_.remove(*block);
    if (comes) {
      LiveBlock made;
      made.address = raw.address;
      blocks_.add(made);
    }
    if (block == nullptr || raw.kind != RawKind::kLabel) return;
    block->category = CategoryId(static_cast<CategoryId::rep>(raw.id));
    block->owner = raw.size;
  }
  LiveBlock* find(const RawEvent& raw) override { return blocks_.find(raw.address); }

  void expect(const ExpectedAllocs* allocs) {
    watched_ = allocs == nullptr;
    expected_ = allocs;
  }

  void push(RawEvent raw) { tape_->on(raw); }
  void begin(std::uint32_t op, std::uint16_t thread = 0) {
    if (watched_) push({.id = op, .thread = thread, .kind = RawKind::kOpBegin});
    seen_.push_back(watched_);
  }
  void end(std::uint16_t thread = 0) {
    if (seen_.back()) push({.thread = thread, .kind = RawKind::kOpEnd});
    seen_.pop_back();
  }
  void alloc(std::uint64_t address, std::uint64_t size, std::uint16_t thread = 0) {
    push({.address = address, .size = size, .thread = thread, .kind = RawKind::kAlloc});
  }
  void stack(std::uint32_t id) { push({.id = id, .kind = RawKind::kStack}); }
  void free(std::uint64_t address, std::uint16_t thread = 0) {
    push({.address = address, .thread = thread, .kind = RawKind::kFree});
  }
  void step() {
    push({.kind = RawKind::kStepEnd});
    steps_.push_back(std::move(text_));
    text_.clear();
  }

  // A scratch block inside an op, an output, a loose free after it.
  void plain_step(std::uint64_t scratch = 512) {
    push({.id = 1, .kind = RawKind::kModuleEnter});
    begin(7);
    alloc(0x1000, scratch);
    begin(8);
    alloc(0x2000, 1024);
    end();
    free(0x1000);
    end();
    push({.id = 1, .kind = RawKind::kModuleLeave});
    free(0x2000);
    step();
  }

  // Labels are told of a walk only while steps are watched.
  struct Label {
    std::uint64_t address;
    std::uint32_t category;
  };
  void walk(const std::vector<Label>& labels) {
    push({.kind = RawKind::kLabelWalk});
    if (!watched_) return;
    for (const auto& [address, category] : labels) label(address, category);
  }
  void label(std::uint64_t address, std::uint32_t category) {
    push({.address = address, .size = 9, .id = category, .kind = RawKind::kLabel});
  }

  void step_with_backward(std::uint64_t first_node);

  void note(const RawEvent& raw) {
    switch (raw.kind) {
      case RawKind::kOpBegin:
        text_ += "(" + std::to_string(raw.id) + " ";
        break;
      case RawKind::kOpEnd:
        text_ += ") ";
        break;
      case RawKind::kAlloc:
        text_ += "+" + std::to_string(raw.size) + " ";
        break;
      case RawKind::kFree:
        text_ += "-" + std::to_string(raw.address) + " ";
        break;
      case RawKind::kModuleEnter:
        text_ += raw.device != 0 ? "[again " : "[ ";
        break;
      case RawKind::kNodeBegin:
        text_ += "n" + std::to_string(raw.address) + " ";
        break;
      case RawKind::kModuleLeave:
        text_ += "] ";
        break;
      case RawKind::kLabel:
        text_ += "=" + std::to_string(raw.id) + "@" + std::to_string(raw.address) + " ";
        break;
      default:
        break;
    }
  }

  bool watched_ = true;
  const ExpectedAllocs* expected_ = nullptr;
  std::vector<bool> seen_;
  std::string text_;
  std::vector<std::string> steps_;
  BlockBook<LiveBlock, TotalBytes> blocks_;
  std::optional<StepTape> tape_;
};

TEST_F(StepTapeTest, OpsOfARepeatedStepComeFromTheTape) {
  for (int i = 0; i < 5; ++i) plain_step();
  EXPECT_FALSE(watched_);
  ASSERT_EQ(steps_.size(), 5u);
  EXPECT_EQ(steps_[0], "[ (7 +512 (8 +1024 ) -4096 ) ] -8192 ");
  for (const std::string& step : steps_) EXPECT_EQ(step, steps_[0]);
}

TEST_F(StepTapeTest, TheProgramIsToldWhatToExpect) {
  plain_step();
  plain_step();
  ASSERT_NE(expected_, nullptr);
  const std::vector<std::uint64_t> sizes{ExpectedAllocs::pack(512, 0),
                                         ExpectedAllocs::pack(1024, 0)};
  EXPECT_TRUE(std::ranges::equal(expected_->of(0).allocs, sizes));
  EXPECT_TRUE(expected_->of(1).allocs.empty());
}

TEST_F(StepTapeTest, AFewOfTheExpectedHaveTheirStacks) {
  const auto run = [&] {
    for (std::uint32_t i = 0; i < 40; ++i) {
      if (i > 0) stack(i);  // the first is too small to have one
      alloc(0x1000 + 64 * std::uint64_t{i}, 512);
    }
    step();
  };
  run();
  run();
  ASSERT_NE(expected_, nullptr);
  const auto& stacks = expected_->of(0).stacks;
  ASSERT_EQ(stacks.size(), 3u);
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    EXPECT_EQ(stacks[i].alloc, 1 + i * ExpectedAllocs::kLookedAt);
    EXPECT_EQ(stacks[i].stack.raw(), stacks[i].alloc);
  }
}

// A step with a stack that is told while steps are watched, and where it was looked at and differs.
TEST_F(StepTapeTest, TheSameSizesFromAnotherPlaceAreADifference) {
  const auto run = [&](std::uint32_t place) {
    if (watched_ || place != 5) stack(place);
    alloc(0x1000, 512);
    free(0x1000);
    step();
  };
  for (int i = 0; i < 3; ++i) run(5);
  ASSERT_FALSE(watched_);
  EXPECT_EQ(steps_.back(), "@5 +512 -4096 ");
  run(6);
  EXPECT_TRUE(watched_);
  EXPECT_EQ(steps_.back(), "@6 +512 -4096 ");
}

TEST_F(StepTapeTest, WhatIsNotOnTheTapeKeepsItsStack) {
  const auto run = [&] {
    if (watched_) stack(5);
    alloc(0x1000, 512);
    free(0x1000);
    step();
  };
  for (int i = 0; i < 3; ++i) run();
  stack(6);
  alloc(0x2000, 2048);
  step();
  EXPECT_EQ(steps_.back(), "@6 +2048 ");
}

TEST_F(StepTapeTest, StacksStillToldOfAfterTheSwitchAreNoDifference) {
  const auto run = [&] {
    if (watched_) stack(5);
    alloc(0x1000, 512);
    free(0x1000);
    step();
  };
  run();
  run();
  ASSERT_FALSE(watched_);
  watched_ = true;  // as on a thread that has not noticed yet
  run();
  watched_ = false;
  run();
  for (const std::string& step : steps_) EXPECT_EQ(step, "@5 +512 -4096 ");
}

TEST_F(StepTapeTest, AProgramThatChangesAllTheTimeIsWatchedForGood) {
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t size = 512 * (static_cast<std::uint64_t>(i) % 2 + 1);
    for (int j = 0; j < 3; ++j) plain_step(size);
  }
  EXPECT_TRUE(watched_);
  EXPECT_EQ(steps_.back(), "[ (7 +1024 (8 +1024 ) -4096 ) ] -8192 ");
}

TEST_F(StepTapeTest, OpsAreWatchedUntilTwoStepsAreEqual) {
  plain_step();
  EXPECT_TRUE(watched_);
  plain_step(1536);
  EXPECT_TRUE(watched_);
  plain_step();
  EXPECT_TRUE(watched_);
  plain_step();
  EXPECT_FALSE(watched_);
}

TEST_F(StepTapeTest, AnotherSizeEndsTheRepetitionAndClosesItsOps) {
  for (int i = 0; i < 3; ++i) plain_step();
  push({.id = 1, .kind = RawKind::kModuleEnter});
  alloc(0x1000, 512);
  alloc(0x2000, 2048);
  EXPECT_TRUE(watched_);
  step();
  EXPECT_EQ(steps_.back(), "[ (7 +512 ) +2048 ");
}

TEST_F(StepTapeTest, AStepThatStopsShortEndsTheRepetition) {
  for (int i = 0; i < 3; ++i) plain_step();
  push({.id = 1, .kind = RawKind::kModuleEnter});
  step();
  EXPECT_TRUE(watched_);
}

TEST_F(StepTapeTest, AfterADifferenceTwoWholeEqualStepsAreNeeded) {
  for (int i = 0; i < 3; ++i) plain_step();
  plain_step(4096);
  EXPECT_TRUE(watched_);
  plain_step();
  EXPECT_TRUE(watched_);
  plain_step();
  EXPECT_FALSE(watched_);
}

TEST_F(StepTapeTest, AFreeAtAnotherTimeIsNoDifferenceAndIsNotInsideAnOpThatIsOver) {
  const auto run = [&](bool collects_early) {
    begin(7);
    alloc(0x1000, 512);
    end();
    if (collects_early) free(0x1000);
    begin(8);
    alloc(0x2000, 1024);
    end();
    if (!collects_early) free(0x1000);
    free(0x2000);
    step();
  };
  run(false);
  run(false);
  ASSERT_FALSE(watched_);
  run(true);
  EXPECT_FALSE(watched_);
  EXPECT_EQ(steps_.back(), "(7 +512 ) -4096 (8 +1024 ) -8192 ");
}

TEST_F(StepTapeTest, ThreadsHaveTapesOfTheirOwn) {
  const auto run = [&](bool other_first) {
    const auto one = [&] {
      begin(1, 0);
      alloc(0x1000, 512, 0);
      end(0);
    };
    const auto two = [&] {
      begin(2, 1);
      alloc(0x2000, 1024, 1);
      end(1);
    };
    if (other_first) two();
    one();
    if (!other_first) two();
    free(0x1000);
    free(0x2000, 1);
    step();
  };
  run(false);
  run(false);
  ASSERT_FALSE(watched_);
  run(true);
  EXPECT_FALSE(watched_);
  EXPECT_EQ(steps_.back(), "(2 +1024 (1 +512 ) -4096 ) -8192 ");
}

TEST_F(StepTapeTest, OpsStillToldOfAfterTheSwitchAreNotTakenTwice) {
  plain_step();
  plain_step();
  ASSERT_FALSE(watched_);
  watched_ = true;  // as on a thread that has not noticed yet
  plain_step();
  EXPECT_EQ(steps_.back(), steps_.front());
}

// Autograd numbers its nodes through all steps; backward runs on a thread of its own.
void StepTapeTest::step_with_backward(std::uint64_t first_node) {
  constexpr std::uint64_t kAutogradThread = 5;
  constexpr std::uint16_t kBackwardThread = 1;
  push({.address = first_node, .extra = kAutogradThread, .id = 1, .kind = RawKind::kModuleEnter});
  alloc(0x1000, 512);
  push({.address = first_node + 2,
        .extra = kAutogradThread,
        .id = 1,
        .kind = RawKind::kModuleLeave});
  if (watched_) {
    push({.address = first_node + 1,
          .extra = kAutogradThread,
          .id = 1,
          .thread = kBackwardThread,
          .kind = RawKind::kNodeBegin});
  }
  alloc(0x2000, 256, kBackwardThread);
  push({.address = 3,
        .extra = 9,
        .id = 2,
        .thread = kBackwardThread,
        .kind = RawKind::kModuleEnter,
        .device = watched_});
  push({.address = 3,
        .extra = 9,
        .id = 2,
        .thread = kBackwardThread,
        .kind = RawKind::kModuleLeave,
        .device = watched_});
  free(0x1000);
  free(0x2000, kBackwardThread);
  step();
}

TEST_F(StepTapeTest, NodesOfARepeatedStepComeFromTheTapeWithTheirNewNumbers) {
  step_with_backward(10);
  step_with_backward(20);
  ASSERT_FALSE(watched_);
  step_with_backward(30);
  EXPECT_EQ(steps_[1], "[ +512 ] n21 +256 [again ] -4096 -8192 ");
  EXPECT_EQ(steps_[2], "[ +512 ] n31 +256 [again ] -4096 -8192 ");
}

TEST_F(StepTapeTest, NodesAfterAThreadsLastAllocationAreNoDifference) {
  for (const std::uint64_t first : {10, 20, 30, 40}) {
    push({.address = first, .extra = 5, .id = 1, .kind = RawKind::kModuleEnter});
    alloc(0x1000, 512);
    if (watched_) push({.address = first, .extra = 5, .id = 1, .kind = RawKind::kNodeBegin});
    free(0x1000);
    step();
  }
  EXPECT_FALSE(watched_);
  EXPECT_EQ(steps_[1], "[ +512 n20 -4096 ");
  EXPECT_EQ(steps_[3], "[ +512 n40 -4096 ");
}

TEST_F(StepTapeTest, LabelsOfARepeatedStepComeFromTheTapeForItsOwnBlocks) {
  alloc(64, 512);  // a parameter from before: labelled once and for all
  step();
  const auto run = [&](std::uint64_t gradient) {
    alloc(gradient, 512, 1);
    walk({{64, 1}, {gradient, 2}});
    push({.kind = RawKind::kPhaseEnd});
    free(gradient);
    step();
  };
  for (const std::uint64_t gradient : {128, 256, 384, 512, 640}) run(gradient);
  EXPECT_FALSE(watched_);
  EXPECT_EQ(steps_[1], "+512 =1@64 =2@128 -128 ");
  EXPECT_EQ(steps_[4], "+512 =2@512 -512 ");
  EXPECT_EQ(steps_[5], "+512 =2@640 -640 ");
}

TEST_F(StepTapeTest, ABlockThatAnEarlierStepMadeIsLabelledInThisOne) {
  const auto run = [&](std::uint64_t replaced, std::uint64_t replacement) {
    walk({{replaced, 1}});
    push({.kind = RawKind::kPhaseBegin});
    alloc(replacement, 512);
    free(replaced);
    step();
  };
  for (std::uint64_t i = 1; i < 6; ++i) run(i * 64, i * 64 + 64);
  EXPECT_FALSE(watched_);
  EXPECT_EQ(steps_.back(), "=1@320 +512 -320 ");
}

TEST_F(StepTapeTest, ABlockThatIsGoneGetsNoLabel) {
  const auto run = [&](bool frees_early) {
    alloc(128, 512);
    if (frees_early) free(128);
    walk({{128, 2}});
    push({.kind = RawKind::kPhaseEnd});
    if (!frees_early) free(128);
    step();
  };
  for (int i = 0; i < 3; ++i) run(false);
  EXPECT_EQ(steps_.back(), "+512 =2@128 -128 ");
  run(true);
  EXPECT_EQ(steps_.back(), "+512 -128 ");
}

TEST_F(StepTapeTest, LabelsOutsideAWalkAreToldEachTimeAndNotRepeated) {
  const auto run = [&] {
    alloc(128, 512);
    walk({});
    push({.kind = RawKind::kPhaseEnd});
    label(128, 4);
    free(128);
    step();
  };
  for (int i = 0; i < 4; ++i) run();
  EXPECT_FALSE(watched_);
  EXPECT_EQ(steps_.back(), "+512 =4@128 -128 ");
}

TEST_F(StepTapeTest, OtherLabelsAreADifference) {
  const auto run = [&](std::uint32_t category) {
    alloc(128, 512);
    walk({{128, category}});
    free(128);
    step();
  };
  run(1);
  run(2);
  EXPECT_TRUE(watched_);
  run(2);
  EXPECT_FALSE(watched_);
}

TEST_F(StepTapeTest, AfterADifferenceLabelsAreToldAgain) {
  const auto run = [&](std::uint64_t size) {
    alloc(128, size);
    walk({{128, 2}});
    free(128);
    step();
  };
  for (int i = 0; i < 3; ++i) run(512);
  ASSERT_FALSE(watched_);
  run(1024);
  EXPECT_EQ(steps_.back(), "+1024 =2@128 -128 ");
}

TEST_F(StepTapeTest, FinishClosesWhatATapeHasOpened) {
  plain_step();
  plain_step();
  push({.id = 1, .kind = RawKind::kModuleEnter});
  alloc(0x1000, 512);
  tape_->finish();
  EXPECT_EQ(text_, "[ (7 +512 ) ");
}

// Random programs with nested ops: repeated steps look like watched ones.
TEST_F(StepTapeTest, RepeatedStepsOfRandomProgramsLookLikeWatchedOnes) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    steps_.clear();
    watched_ = true;
    new_tape();
    for (int round = 0; round < 4; ++round) {
      std::mt19937 random(seed);
      std::vector<std::uint64_t> live;
      std::uint64_t next = 0x1000;
      int depth = 0;
      for (int i = 0; i < 60; ++i) {
        switch (random() % 4) {
          case 0:
            // As the observer does: an op is told of only when it allocates.
            begin(static_cast<std::uint32_t>(random() % 9));
            ++depth;
            [[fallthrough]];
          case 1:
            alloc(next, (random() % 5 + 1) * 512);
            live.push_back(next);
            next += 0x1000;
            break;
          case 2:
            if (!live.empty()) {
              free(live.back());
              live.pop_back();
            }
            break;
          default:
            if (depth > 0) {
              end();
              --depth;
            }
        }
      }
      for (; depth > 0; --depth) end();
      for (const std::uint64_t block : live) free(block);
      step();
    }
    ASSERT_EQ(steps_.size(), 4u);
    ASSERT_FALSE(watched_) << seed;
    ASSERT_EQ(steps_[2], steps_[0]) << seed;
    ASSERT_EQ(steps_[3], steps_[0]) << seed;
  }
}

// Stacks are taken only while steps are watched, as the program's gate does it.
class StackTapeTest : public StepTapeTest {
 protected:
  void stacked_step(std::uint32_t stack, std::uint64_t first_node) {
    push({.address = first_node, .extra = 5, .id = 1, .kind = RawKind::kModuleEnter});
    begin(7);
    if (watched_) push({.size = stack, .id = stack, .kind = RawKind::kStack});
    alloc(0x1000, 512);
    end();
    if (watched_) {
      push({.address = first_node + 1, .extra = 5, .id = stack, .kind = RawKind::kNodesMade});
    }
    push({.address = first_node + 2, .extra = 5, .id = 1, .kind = RawKind::kModuleLeave});
    free(0x1000);
    step();
  }
};

TEST_F(StackTapeTest, ARepeatedStepHasTheStacksOfTheOneBefore) {
  stacked_step(40, 100);
  stacked_step(40, 200);
  EXPECT_FALSE(watched_);
  stacked_step(40, 300);
  EXPECT_NE(steps_[2].find("@40 +512"), std::string::npos) << steps_[2];
  EXPECT_NE(steps_[2].find("made301@40"), std::string::npos) << steps_[2];
}

TEST_F(StackTapeTest, StepsThatComeFromOtherLinesAreNotEqual) {
  stacked_step(40, 100);
  stacked_step(41, 200);
  EXPECT_TRUE(watched_);
  stacked_step(41, 300);
  EXPECT_FALSE(watched_);
}

}  // namespace
}  // namespace peakline::capture
