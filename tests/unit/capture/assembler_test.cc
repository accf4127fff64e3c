#include "capture/assembler.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include <peakline/category.h>

#include "read_trace.h"

namespace peakline::capture {
namespace {

constexpr std::uint8_t kCpu = 0;
constexpr std::uint8_t kCuda = 1;
constexpr std::uint64_t kStacksFrom = 1024;  // bytes

// Feeds raw events and tells what the recording then counts.
class AssemblerTest : public ::testing::Test {
 protected:
  AssemblerTest() : writer_(make_memory_sink(bytes_)), assembler_(writer_, kCpu, kStacksFrom) {
    writer_.device({"cpu", "", Bytes{}});
    writer_.device({"cuda:0", "", Bytes{}});
    writer_.thread("main");
    net_ = writer_.module("Net", "Net", ModuleId{});
    layer_ = writer_.module("Net.layer", "Linear", net_);
  }

  void alloc(std::uint64_t address, std::uint64_t bytes, std::uint8_t device = kCuda) {
    assembler_.on({.address = address,
                   .size = bytes,
                   .extra = bytes,
                   .kind = RawKind::kAlloc,
                   .device = device});
  }
  void estimate(std::uint64_t address, std::uint64_t bytes) {
    assembler_.on({.address = address,
                   .size = bytes,
                   .extra = bytes,
                   .kind = RawKind::kAllocEstimate,
                   .device = kCuda});
  }
  void total(std::uint64_t bytes) {
    assembler_.on({.size = bytes, .kind = RawKind::kTotal, .device = kCuda});
  }
  void free(std::uint64_t address, std::uint64_t bytes = 0, std::uint8_t device = kCuda) {
    assembler_.on({.address = address, .size = bytes, .kind = RawKind::kFree, .device = device});
  }
  void waits(std::uint64_t address) {
    assembler_.on({.address = address, .kind = RawKind::kFreeWaits, .device = kCuda});
  }
  void completed(std::uint64_t address) {
    assembler_.on({.address = address, .kind = RawKind::kFreeCompleted, .device = kCuda});
  }
  void label(std::uint64_t address, CategoryId category) {
    assembler_.on(
        {.address = address, .id = category.raw(), .kind = RawKind::kLabel, .device = kCuda});
  }
  void module(RawKind kind, ModuleId module, std::uint64_t sequence, bool recompute = false) {
    assembler_.on({.address = sequence,
                   .extra = 1,
                   .id = module.raw(),
                   .kind = kind,
                   .device = static_cast<std::uint8_t>(recompute)});
  }
  void node(std::uint64_t sequence, std::uint32_t depth = 1) {
    assembler_.on({.address = sequence, .extra = 1, .id = depth, .kind = RawKind::kNodeBegin});
  }
  // `own`: the same without the library's lines at its end.
  void stack(std::uint32_t stack, std::uint32_t own, RawKind kind = RawKind::kStack,
             std::uint16_t thread = 0) {
    assembler_.on({.size = own, .id = stack, .thread = thread, .kind = kind});
  }
  void alloc_on(std::uint16_t thread, std::uint64_t address, std::uint64_t bytes) {
    assembler_.on({.address = address,
                   .size = bytes,
                   .extra = bytes,
                   .thread = thread,
                   .kind = RawKind::kAlloc,
                   .device = kCuda});
  }
  void nodes_made(std::uint64_t first, std::uint32_t stack) {
    assembler_.on({.address = first, .extra = 1, .id = stack, .kind = RawKind::kNodesMade});
  }
  void node_on(std::uint16_t thread, std::uint64_t sequence) {
    assembler_.on(
        {.address = sequence, .extra = 1, .id = 1, .thread = thread, .kind = RawKind::kNodeBegin});
  }
  // Backward was called at stack 90; nodes 10 to 19 were made at 50, and those from 20 on at 60.
  void begin_backward() {
    nodes_made(10, 50);
    nodes_made(20, 60);
    stack(91, 90, RawKind::kBackwardStack);
    phase(RawKind::kPhaseBegin, Phase::kBackward);
  }

  void phase(RawKind kind, Phase phase) {
    assembler_.on({.id = static_cast<std::uint32_t>(phase), .kind = kind});
  }

  void close() {
    if (closed_) return;
    closed_ = true;
    assembler_.finish();
    EXPECT_TRUE(writer_.close().ok());
  }

  template <class T>
  std::vector<T> recorded() {
    close();
    std::vector<T> out;
    for (const Event& event : testing::read_trace(bytes_).events) {
      if (const T* body = std::get_if<T>(&event.body)) out.push_back(*body);
    }
    return out;
  }

  std::vector<std::byte> bytes_;
  TraceWriter writer_;
  Assembler assembler_;
  ModuleId net_;
  ModuleId layer_;
  bool closed_ = false;
};

TEST_F(AssemblerTest, AStackComesBeforeTheNextAllocationOfItsThread) {
  stack(7, 6);
  alloc(0x1000, 512);
  alloc(0x2000, 512);
  const std::vector<CallStack> calls = recorded<CallStack>();
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].stack, StackId(7));
  EXPECT_EQ(calls[0].forward, StackId{});
}

TEST_F(AssemblerTest, InBackwardTheLineThatMadeTheNodeIsBesideTheCall) {
  begin_backward();
  node(15);
  stack(92, 90);  // another line of the library's, below the same line of the program
  alloc(0x1000, 512);
  node(25);
  stack(92, 90);
  alloc(0x2000, 512);
  phase(RawKind::kPhaseEnd, Phase::kBackward);
  stack(92, 90);
  alloc(0x3000, 512);
  const std::vector<CallStack> calls = recorded<CallStack>();
  ASSERT_EQ(calls.size(), 3U);
  EXPECT_EQ(calls[0].forward, StackId(50));
  EXPECT_EQ(calls[0].stack, StackId(92));
  EXPECT_EQ(calls[1].forward, StackId(60));
  EXPECT_EQ(calls[2].forward, StackId{});
}

TEST_F(AssemblerTest, AutogradsThreadsHaveTheStackOfTheCallOfBackward) {
  writer_.thread("autograd");
  begin_backward();
  node_on(1, 15);
  alloc_on(1, 0x1000, kStacksFrom);
  alloc_on(1, 0x2000, kStacksFrom - 1);  // too small to be asked after
  const std::vector<CallStack> calls = recorded<CallStack>();
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].stack, StackId(91));
  EXPECT_EQ(calls[0].forward, StackId(50));
}

TEST_F(AssemblerTest, TheProgramsOwnCodeInBackwardIsItsOwnLine) {
  begin_backward();
  node(15);
  stack(94, 93);  // a hook, or forward once more
  alloc(0x1000, 512);
  const std::vector<CallStack> calls = recorded<CallStack>();
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].stack, StackId(94));
  EXPECT_EQ(calls[0].forward, StackId{});
}

TEST_F(AssemblerTest, AFailureHasAStackToo) {
  stack(7, 7);
  assembler_.on({.size = 4096, .kind = RawKind::kOutOfMemory, .device = kCuda});
  alloc(0x1000, 512);
  EXPECT_EQ(recorded<CallStack>().size(), 1U);
}

TEST_F(AssemblerTest, AnAddressUsedAgainIsAnotherBlock) {
  alloc(0x1000, 512);
  free(0x1000);
  alloc(0x1000, 1024);
  const std::vector<Alloc> allocs = recorded<Alloc>();
  ASSERT_EQ(allocs.size(), 2U);
  EXPECT_NE(allocs[0].block, allocs[1].block);
}

TEST_F(AssemblerTest, AMissedFreeIsMadeUpForAndCounted) {
  alloc(0x1000, 512);
  alloc(0x1000, 1024);
  alloc(0x2000, 1);
  const std::vector<Lost> lost = recorded<Lost>();
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].count, 1U);
}

TEST_F(AssemblerTest, AnEstimateIsCorrectedByTheAllocatorsTotal) {
  alloc(0x1000, 512);
  estimate(0x2000, 1024);
  total(512 + 2048);  // the block was not split
  const std::vector<Resize> resizes = recorded<Resize>();
  ASSERT_EQ(resizes.size(), 1U);
  EXPECT_EQ(resizes[0].bytes, Bytes(2048));
}

TEST_F(AssemblerTest, ACorrectEstimateStays) {
  estimate(0x2000, 1024);
  total(1024);
  total(1024);
  EXPECT_TRUE(recorded<Resize>().empty());
}

TEST_F(AssemblerTest, ASizeThatBecomesKnownIsNoLongerAnEstimate) {
  estimate(0x2000, 1024);
  assembler_.on({.address = 0x2000, .size = 2048, .kind = RawKind::kResize, .device = kCuda});
  total(2048 + 512);  // something else is missing
  EXPECT_EQ(recorded<Resize>().size(), 1U);
  EXPECT_EQ(recorded<Lost>().size(), 1U);
}

TEST_F(AssemblerTest, ATotalThatNoEstimateExplainsIsALoss) {
  alloc(0x1000, 512);
  total(4096);
  EXPECT_EQ(recorded<Lost>().size(), 1U);
}

TEST_F(AssemblerTest, FreesOfUnknownBlocksShrinkWhatWasThereBefore) {
  assembler_.on({.size = 10'000, .kind = RawKind::kForeignBlock, .device = kCuda});
  free(0x9000, 4'000);
  free(0x8000, 6'000);
  const std::vector<Resize> resizes = recorded<Resize>();
  ASSERT_EQ(resizes.size(), 2U);
  EXPECT_EQ(resizes[0].bytes, Bytes(6'000));
  EXPECT_EQ(resizes[1].bytes, Bytes(0));
}

TEST_F(AssemblerTest, HostFreesOfUnknownBlocksAreNobodysLoss) {
  free(0x9000, 0, kCpu);
  EXPECT_TRUE(recorded<Lost>().empty());
}

TEST_F(AssemblerTest, AFreeThatWaitsAndCompletesLaterNamesTheBlockThatWasFreed) {
  alloc(0x1000, 512);
  alloc(0x2000, 512);
  free(0x2000);
  waits(0x2000);
  free(0x1000);
  alloc(0x1000, 512);
  completed(0x2000);
  completed(0x2000);
  const std::vector<StreamUse> uses = recorded<StreamUse>();
  ASSERT_EQ(uses.size(), 1U);
  EXPECT_EQ(uses[0].block, BlockId(2));
  EXPECT_EQ(uses[0].stream, kUnknownStream);
  const std::vector<FreeCompleted> late = recorded<FreeCompleted>();
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0].block, BlockId(2));
}

TEST_F(AssemblerTest, AWaitingFreeIsKnownHoweverManyFreesComeBetween) {
  alloc(0x1000, 512);
  free(0x1000);
  waits(0x1000);
  for (int i = 0; i < 10'000; ++i) {
    alloc(0x2000, 512);
    free(0x2000);
  }
  completed(0x1000);
  EXPECT_EQ(recorded<FreeCompleted>().size(), 1U);
}

TEST_F(AssemblerTest, RetriesFailuresAndEmptiedCachesAreRecorded) {
  assembler_.on({.size = 100, .kind = RawKind::kRetry, .device = kCuda});
  assembler_.on({.size = 200, .kind = RawKind::kOutOfMemory, .device = kCuda});
  assembler_.on({.kind = RawKind::kEmptyCache, .device = kCuda});
  const std::vector<OutOfMemory> failures = recorded<OutOfMemory>();
  ASSERT_EQ(failures.size(), 2U);
  EXPECT_EQ(failures[0].kind, OutOfMemory::Kind::kRetry);
  EXPECT_EQ(failures[1].kind, OutOfMemory::Kind::kFailed);
  EXPECT_EQ(recorded<EmptyCache>().size(), 1U);
}

TEST_F(AssemblerTest, AnInputThatIsAParameterStaysAParameter) {
  alloc(0x1000, 512);
  label(0x1000, category::kParameter);
  label(0x1000, category::kInput);
  const std::vector<Label> labels = recorded<Label>();
  ASSERT_EQ(labels.size(), 1U);
  EXPECT_EQ(labels[0].category, category::kParameter);
}

TEST_F(AssemblerTest, TheSameLabelAgainIsNotWrittenAgain) {
  alloc(0x1000, 512);
  for (int i = 0; i < 5; ++i) label(0x1000, category::kParameter);
  EXPECT_EQ(recorded<Label>().size(), 1U);
}

TEST_F(AssemblerTest, BackwardEntersTheModulesThatMadeTheNodeAndLeavesThemAtItsEnd) {
  module(RawKind::kModuleEnter, net_, 10);
  module(RawKind::kModuleEnter, layer_, 12);
  module(RawKind::kModuleLeave, layer_, 15);
  module(RawKind::kModuleLeave, net_, 16);
  phase(RawKind::kPhaseBegin, Phase::kBackward);
  node(14);
  node(UINT64_MAX);  // accumulates a gradient: stays where it is
  node(13);
  node(11);
  phase(RawKind::kPhaseEnd, Phase::kBackward);
  std::vector<ModuleId> entered;
  for (const ModuleEnter& enter : recorded<ModuleEnter>()) {
    if (enter.pass == ModulePass::kBackward) entered.push_back(enter.module);
  }
  EXPECT_EQ(entered, (std::vector<ModuleId>{net_, layer_}));
}

TEST_F(AssemblerTest, EveryModuleIsLeftAsOftenAsEntered) {
  module(RawKind::kModuleEnter, net_, 10);
  module(RawKind::kModuleEnter, layer_, 12);
  phase(RawKind::kPhaseBegin, Phase::kBackward);
  node(12);
  module(RawKind::kModuleEnter, layer_, 20, true);
  node(20, 2);
  module(RawKind::kModuleLeave, layer_, 21, true);
  close();
  int open = 0;
  for (const Event& event : testing::read_trace(bytes_).events) {
    open += std::holds_alternative<ModuleEnter>(event.body) ? 1 : 0;
    open -= std::holds_alternative<ModuleLeave>(event.body) ? 1 : 0;
  }
  EXPECT_EQ(open, 0);
}

}  // namespace
}  // namespace peakline::capture
