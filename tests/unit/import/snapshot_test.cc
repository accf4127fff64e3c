#include <gtest/gtest.h>

#include "import_support.h"

namespace peakline::testing {
namespace {

// A snapshot with one device; `fill` writes its trace entries.
template <class Fill>
std::string snapshot(Fill fill, std::int64_t alive_address = 0) {
  PickleWriter writer;
  writer.dict().text("segments").list();
  if (alive_address != 0) {
    writer.dict().text("address").number(alive_address).text("total_size").number(2097152);
    writer.text("device").number(0).text("stream").number(0).text("blocks").list();
    writer.dict().text("size").number(1024).text("requested_size").number(600);
    writer.text("state").text("active_allocated").end_dict();
    writer.dict().text("size").number(2096128).text("state").text("inactive").end_dict();
    writer.end_list().end_dict();
  }
  writer.end_list().text("device_traces").list().list();
  fill(writer);
  writer.end_list().end_list().end_dict();
  return writer.done();
}

TEST(ImportSnapshot, EntriesBecomeEventsInOrder) {
  const auto run = imported_snapshot(snapshot([](PickleWriter& w) {
    w.entry("segment_alloc", 2097152, 2097152, 100).entry("alloc", 2097152, 700, 101);
    w.entry("free_requested", 2097152, 700, 105).entry("free_completed", 2097152, 700, 105);
    w.entry("snapshot", 0, 0, 106);
  }));
  ASSERT_TRUE(run->status.ok()) << run->status.message();
  EXPECT_EQ(run->all<SegmentAlloc>().size(), 1u);
  ASSERT_EQ(run->all<Alloc>().size(), 1u);
  EXPECT_EQ(run->all<Alloc>()[0].requested, 700_B);
  EXPECT_EQ(run->all<Free>().size(), 1u);
  EXPECT_EQ(run->events.front().time, TimeNs(0));
  EXPECT_EQ(run->events.back().time, TimeNs(5000));
  EXPECT_EQ(run->dictionary.device(DeviceId(0)).name, "cuda:0");
}

TEST(ImportSnapshot, AFreePieceThatIsNotWorthSplittingCountsForTheBlockInIt) {
  constexpr std::int64_t kStart = 64 << 20;
  constexpr std::int64_t kMiB = 1 << 20;
  const auto run = imported_snapshot(snapshot([&](PickleWriter& w) {
    w.entry("segment_alloc", kStart, 40 * kMiB, 100);
    w.entry("alloc", kStart, 20 * kMiB, 101);              // much is left: it is split off
    w.entry("alloc", kStart + 20 * kMiB, 19 * kMiB, 102);  // 1 MiB is left: too little
    w.entry("free_requested", kStart, 20 * kMiB, 103)
        .entry("free_completed", kStart, 20 * kMiB, 103);
    w.entry("alloc", kStart, 19 * kMiB + 300 * 1024, 104);  // up to the block behind it
    w.entry("segment_alloc", 4 * kStart, 2 * kMiB, 105).entry("alloc", 4 * kStart, kMiB, 106);
  }));
  ASSERT_TRUE(run->status.ok()) << run->status.message();
  const auto allocs = run->all<Alloc>();
  ASSERT_EQ(allocs.size(), 4u);
  EXPECT_EQ(allocs[0].bytes, 20_MiB);
  EXPECT_EQ(allocs[1].bytes, 20_MiB);
  EXPECT_EQ(allocs[1].requested, 19_MiB);
  EXPECT_EQ(allocs[2].bytes, 20_MiB);
  EXPECT_EQ(allocs[3].bytes, 1_MiB);  // small blocks are always split
}

TEST(ImportSnapshot, ARestThatAnotherBlockLiesInWasSplitOff) {
  constexpr std::int64_t kStart = 64 << 20;
  constexpr std::int64_t kMiB = 1 << 20;
  const auto run = imported_snapshot(snapshot([&](PickleWriter& w) {
    w.entry("segment_alloc", kStart, 20 * kMiB, 100).entry("alloc", kStart, 19 * kMiB, 101);
    w.entry("alloc", kStart + 19 * kMiB, 512, 102);
  }));
  ASSERT_TRUE(run->status.ok()) << run->status.message();
  EXPECT_EQ(run->all<Alloc>()[0].bytes, 20_MiB);
  ASSERT_EQ(run->all<Resize>().size(), 1u);
  EXPECT_EQ(run->all<Resize>()[0].bytes, 19_MiB);
}

TEST(ImportSnapshot, BlocksThatTheTraceNeverAllocatedWereThereBefore) {
  const auto run = imported_snapshot(snapshot(
      [](PickleWriter& w) {
        w.entry("alloc", 4194304, 100, 10);
        // Freed without being allocated: lost from the ring buffer.
        w.entry("free_requested", 8388608, 5000, 11).entry("free_completed", 8388608, 5000, 11);
      },
      2097152));
  ASSERT_TRUE(run->status.ok()) << run->status.message();
  EXPECT_EQ(run->counts.already_alive, 2u);
  const auto allocs = run->all<Alloc>();
  ASSERT_EQ(allocs.size(), 3u);
  EXPECT_EQ(allocs[0].address, Address(2097152));
  EXPECT_EQ(allocs[0].requested, 600_B);
  EXPECT_EQ(allocs[1].address, Address(8388608));
  EXPECT_EQ(allocs[2].address, Address(4194304));
  EXPECT_EQ(run->all<SegmentAlloc>().size(), 1u);
}

TEST(ImportSnapshot, ASnapshotWithoutTraceIsItsSegments) {
  const auto run = imported_snapshot(snapshot([](PickleWriter&) {}, 2097152));
  ASSERT_TRUE(run->status.ok()) << run->status.message();
  EXPECT_EQ(run->all<Alloc>().size(), 1u);
}

TEST(ImportSnapshot, TheInnermostPythonFrameNamesTheOp) {
  PickleWriter writer;
  writer.dict().text("segments").list().end_list().text("device_traces").list().list();
  writer.dict().text("action").text("alloc").text("addr").number(512).text("size").number(9);
  writer.text("stream").number(0).text("frames").list();
  writer.dict()
      .text("filename")
      .text("??")
      .text("line")
      .number(0)
      .text("name")
      .text("x")
      .end_dict();
  writer.dict().text("filename").text("/a/b/train.py").text("line").number(12);
  writer.text("name").text("forward").end_dict();
  writer.end_list().end_dict().end_list().end_list().end_dict();
  const auto run = imported_snapshot(writer.done());
  ASSERT_TRUE(run->status.ok()) << run->status.message();
  ASSERT_EQ(run->all<OpBegin>().size(), 1u);
  EXPECT_EQ(run->dictionary.op(run->all<OpBegin>()[0].op), "train.py:12 forward");
  ASSERT_EQ(run->all<CallStack>().size(), 1u);
  const LineId line = run->dictionary.own_line(run->all<CallStack>()[0].stack);
  EXPECT_EQ(run->dictionary.name(run->dictionary.line(line).file), "/a/b/train.py");
  EXPECT_EQ(run->dictionary.line(line).line, 12u);
}

// A free segment is given back at `line`, and another one taken for an allocation at line 7.
std::string gives_back_at(std::int64_t line) {
  return snapshot([line](PickleWriter& w) {
    w.entry("segment_alloc", 2097152, 20971520, 1).entry("alloc", 2097152, 20971520, 2, 5);
    w.entry("free_requested", 2097152, 20971520, 3).entry("free_completed", 2097152, 20971520, 3);
    w.entry("segment_free", 2097152, 20971520, 4, line);
    w.entry("segment_alloc", 41943040, 31457280, 5).entry("alloc", 41943040, 31457280, 6, 7);
  });
}

TEST(ImportSnapshot, SegmentsGivenBackWhereMemoryIsAskedForAreARetry) {
  const auto run = imported_snapshot(gives_back_at(7));
  ASSERT_TRUE(run->status.ok()) << run->status.message();
  const auto failures = run->all<OutOfMemory>();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].kind, OutOfMemory::Kind::kRetry);
  EXPECT_TRUE(run->all<EmptyCache>().empty());
}

TEST(ImportSnapshot, SegmentsGivenBackElsewhereAreAnEmptiedCache) {
  const auto run = imported_snapshot(gives_back_at(6));
  ASSERT_TRUE(run->status.ok()) << run->status.message();
  EXPECT_EQ(run->all<EmptyCache>().size(), 1u);
  EXPECT_TRUE(run->all<OutOfMemory>().empty());
}

TEST(ImportSnapshot, TheAllocatorsSettingsAreKept) {
  PickleWriter writer;
  writer.dict().text("segments").list().end_list().text("device_traces").list().end_list();
  writer.text("allocator_settings").dict().text("PYTORCH_CUDA_ALLOC_CONF");
  writer.text("max_split_size_mb:64,expandable_segments:True").end_dict().end_dict();
  const auto run = imported_snapshot(writer.done());
  ASSERT_TRUE(run->status.ok()) << run->status.message();
  EXPECT_EQ(run->info["allocator_conf"], "max_split_size_mb:64,expandable_segments:True");
  EXPECT_EQ(run->info["allocator_settings"], "expandable_segments:True,max_split_size_mb:64");
}

TEST(ImportSnapshot, OtherPicklesAreRefused) {
  EXPECT_EQ(imported_snapshot("]K\1a.")->status.message(),
            "memory is a pickle, but not a memory snapshot: it has no 'segments' and no "
            "'device_traces'");
}

TEST(ImportSnapshot, EntriesThatCannotBeTrueAreSaidByNumber) {
  const auto run = imported_snapshot(
      snapshot([](PickleWriter& w) { w.entry("alloc", 512, 100, 1).entry("alloc", 512, 100, 2); }));
  EXPECT_EQ(run->status.message(),
            "entry 2 of the snapshot's trace: the block at 512 lies over the live block at 512");
}

}  // namespace
}  // namespace peakline::testing
