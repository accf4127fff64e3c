// What goes into a recording comes out of it again.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "random_events.h"
#include "read_trace.h"
#include "trace_builder.h"

namespace peakline::testing {
namespace {

constexpr auto kMin64 = std::numeric_limits<std::int64_t>::min();
constexpr auto kMax64 = std::numeric_limits<std::int64_t>::max();
constexpr auto kMaxU64 = std::numeric_limits<std::uint64_t>::max();
constexpr auto kMaxU32 = std::numeric_limits<std::uint32_t>::max();

std::vector<std::string> texts(const std::vector<Event>& events) {
  std::vector<std::string> out;
  for (const Event& event : events) out.push_back(to_text(event));
  return out;
}

TraceBuilder every_kind() {
  return TraceBuilder{}
      .info("torch", "2.13.0")
      .device("cuda:0", 80_GiB, "NVIDIA H100")
      .phase_begin(Phase::kForward)
      .enter("Net.fc1")
      .op("aten::mm")
      .segment_alloc(0x7f0000000000, 20_MiB)
      .alloc("a", 4_MiB, Bytes(4'194'000))
      .label("a", category::kActivation, "Net.fc1", "weight")
      .label("a", category::kTemp)
      .sure("a", Certainty::kModelled)
      .op_end()
      .leave("Net.fc1")
      .phase_end(Phase::kForward)
      .thread("autograd")
      .phase_begin(Phase::kBackward)
      .backward("Net.fc1")
      .recompute("Net.fc1")
      .recompute_end("Net.fc1")
      .backward_end("Net.fc1")
      .thread("main")
      .phase_end(Phase::kBackward)
      .phase_begin(Phase::kOptimizer)
      .resize("a", 2_MiB)
      .stream_use("a", 7)
      .free("a")
      .free_completed("a")
      .collective("all_gather", "dp", 3_MiB)
      .marker("here")
      .reserved(20_MiB)
      .empty_cache()
      .segment_free(0x7f0000000000, 20_MiB)
      .oom(100_GiB)
      .oom(100_GiB, OutOfMemory::Kind::kRetry)
      .lost(Loss::kUnseenFree, 3)
      .region("eval")
      .region_end()
      .at("a.py:1 main", "b.py:2 f")
      .step();
}

TEST(TraceRoundTrip, EveryKindOfEventComesBack) {
  const auto trace = every_kind();
  const ReadTrace read = read_trace(trace.bytes());
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_EQ(read.texts(), texts(trace.events()));
  EXPECT_TRUE(read.diagnostics.empty());
  std::vector<bool> seen(std::variant_size_v<EventBody>);
  for (const Event& event : read.events) seen[event.body.index()] = true;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), false), 0) << "the test forgot a kind";
}

TEST(TraceRoundTrip, WordsAndFactsComeBack) {
  auto trace = every_kind();
  const ReadTrace read = read_trace(trace.bytes());
  EXPECT_EQ(read.info, (RunInfo{{"torch", "2.13.0"}}));
  EXPECT_EQ(read.dictionary.op(OpId(1)), "aten::mm");
  const ModuleId fc1 = trace.module_id("Net.fc1");
  EXPECT_EQ(read.dictionary.module(fc1).path, "Net.fc1");
  EXPECT_EQ(read.dictionary.module(read.dictionary.module(fc1).parent).path, "Net");
  EXPECT_EQ(read.dictionary.device(DeviceId(0)).model, "NVIDIA H100");
  EXPECT_EQ(read.dictionary.device(DeviceId(0)).total, 80_GiB);
  EXPECT_EQ(read.dictionary.thread(ThreadId(1)), "autograd");
  EXPECT_EQ(read.dictionary.name(NameId(1)), "weight");
}

TEST(TraceRoundTrip, ExtremeValuesComeBack) {
  TraceBuilder trace;
  trace.tick(0);
  for (const std::int64_t size : {kMin64, kMin64 + 1, std::int64_t{-1}, std::int64_t{0}, kMax64,
                                  kMax64 - 511, std::int64_t{511}, std::int64_t{512}}) {
    for (const std::uint64_t id : {std::uint64_t{0}, kMaxU64, std::uint64_t{1} << 63}) {
      trace.add(Alloc{BlockId(id), Bytes(size), Bytes(kMin64), Address(id), StreamId(kMaxU32),
                      DeviceId(255)});
      trace.add(
          Alloc{BlockId(id), Bytes(size), Bytes(size), Address(~id), StreamId(0), DeviceId(0)});
      trace.add(Free{BlockId(id)}).add(Free{BlockId(~id)}).add(FreeCompleted{BlockId(~id)});
      trace.add(Resize{BlockId(id), Bytes(size)});
      trace.add(Label{BlockId(~id), CategoryId(255), ModuleId(kMaxU32), NameId(kMaxU32)});
      trace.add(Label{BlockId(id), CategoryId(0), ModuleId(0), NameId(1)});
      trace.add(SegmentAlloc{Address(id), Bytes(size), StreamId(kMaxU32), DeviceId(255)});
      trace.add(SegmentFree{Address(id), Bytes(size), DeviceId(255)});
      trace.add(Reserved{Bytes(size), DeviceId(254)}).add(EmptyCache{DeviceId(255)});
      trace.add(OutOfMemory{Bytes(size), DeviceId(255), OutOfMemory::Kind::kRetry});
      trace.add(Collective{NameId(kMaxU32), NameId(kMaxU32), Bytes(size)});
      trace.add(StreamUse{BlockId(id), StreamId(kMaxU32)});
      trace.add(Sureness{BlockId(id), Certainty::kOutputsOnly});
      trace.add(Lost{NameId(kMaxU32), kMaxU64}).add(Marker{NameId(kMaxU32)});
      trace.add(CallStack{StackId(kMaxU32), StackId(kMaxU32)})
          .add(CallStack{StackId(1), StackId{}});
      trace.add(RegionBegin{NameId(kMaxU32)}).add(RegionEnd{});
      trace.add(OpBegin{OpId(kMaxU32)}).add(ModuleEnter{ModuleId(kMaxU32), ModulePass::kRecompute});
    }
  }
  const ReadTrace read = read_trace(trace.bytes());
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_EQ(read.texts(), texts(trace.events()));
}

TEST(TraceRoundTrip, StacksComeBackWithTheirLines) {
  auto trace = TraceBuilder{}.at("a.py:1 main > lib:torch.py:2 call > b.py:3 f").alloc("x", 4_MiB);
  trace.at("a.py:1 main > b.py:4 f", "b.py:3 f").alloc("y", 4_MiB);
  const ReadTrace read = read_trace(trace.bytes());
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_EQ(read.texts(), texts(trace.events()));
  const StackId stack = trace.stack_id("a.py:1 main > lib:torch.py:2 call > b.py:3 f");
  EXPECT_EQ(read.dictionary.stack(stack).depth, 3u);
  const CodeLine& line = read.dictionary.line(read.dictionary.own_line(stack));
  EXPECT_EQ(read.dictionary.name(line.file), "b.py");
  EXPECT_EQ(line.text, "line 3");
  EXPECT_EQ(read.dictionary.stack_count(), trace.dictionary().stack_count());
}

TEST(TraceRoundTrip, TimeMaySpanItsWholeRange) {
  const auto trace =
      TraceBuilder{}.tick(0).wait(kMin64).step().step().wait(kMax64).step().wait(kMax64).step();
  const ReadTrace read = read_trace(trace.bytes());
  EXPECT_EQ(read.texts(), texts(trace.events()));
  EXPECT_EQ(read.events.front().time, TimeNs(kMin64));
}

TEST(TraceRoundTrip, AClockThatGoesBackIsHeld) {
  const auto trace = TraceBuilder{}.tick(0).wait(100).step().wait(-30).step().wait(80).step();
  const ReadTrace read = read_trace(trace.bytes());
  ASSERT_EQ(read.events.size(), 3u);
  EXPECT_EQ(read.events[1].time, TimeNs(100));
  EXPECT_EQ(read.events[2].time, TimeNs(150));
}

TEST(TraceRoundTrip, AnEmptyRecordingIsWhole) {
  const ReadTrace read = read_trace(TraceBuilder{}.bytes());
  EXPECT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_TRUE(read.events.empty());
  EXPECT_TRUE(read.diagnostics.empty());
}

class RandomStreams : public ::testing::TestWithParam<unsigned> {};

TEST_P(RandomStreams, ComeBackInChunksOfEverySize) {
  std::mt19937_64 random(GetParam());
  const TraceBuilder trace = random_events(random, 5000);
  for (const std::size_t chunk_bytes :
       {std::size_t{1}, std::size_t{100}, std::size_t{5000}, std::size_t{256} << 10}) {
    const ReadTrace read = read_trace(trace.bytes({.chunk_bytes = chunk_bytes}));
    ASSERT_TRUE(read.status.ok()) << read.status.message();
    ASSERT_EQ(read.texts(), texts(trace.events())) << "chunks of " << chunk_bytes;
    EXPECT_TRUE(read.diagnostics.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomStreams, ::testing::Range(0u, 8u));

}  // namespace
}  // namespace peakline::testing
