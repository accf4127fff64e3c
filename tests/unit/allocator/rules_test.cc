// One rule of the allocator each.
#include <gtest/gtest.h>

#include "allocator_fixture.h"

namespace peakline::testing {
namespace {

TEST(Rounding, IsToWholeBlocksOf512Bytes) {
  AllocatorWorld world;
  world.alloc("a", 1_B);
  world.alloc("b", 513_B);
  EXPECT_EQ(world.size("a"), 512_B);
  EXPECT_EQ(world.size("b"), 1024_B);
}

TEST(Rounding, DividesPowersOfTwoWhenAskedTo) {
  const AllocatorConfig config = *AllocatorConfig::parse("roundup_power2_divisions:4");
  EXPECT_EQ(config.round_size(1200 << 10), 1280u << 10);
  EXPECT_EQ(config.round_size(1280 << 10), 1280u << 10);
  EXPECT_EQ(config.round_size(1 << 20), 1u << 20);
  EXPECT_EQ(config.round_size(1500), 1536u) << "too small to divide";
}

TEST(Rounding, ListHoldsFromItsSizesOnAndForEverythingBelowTheFirst) {
  const AllocatorConfig config =
      *AllocatorConfig::parse("roundup_power2_divisions:[64:8,256:2,>:1]");
  constexpr std::uint64_t kMiB = 1 << 20;
  EXPECT_EQ(config.round_size(33 * kMiB), 36 * kMiB) << "below the first: as the first";
  EXPECT_EQ(config.round_size(65 * kMiB), 72 * kMiB);
  EXPECT_EQ(config.round_size(129 * kMiB), 129 * kMiB) << "not named: no division";
  EXPECT_EQ(config.round_size(257 * kMiB), 384 * kMiB);
  EXPECT_EQ(config.round_size(513 * kMiB), 513 * kMiB);
}

TEST(Segments, AreTwoMegabytesForSmallAndTwentyForMediumBlocks) {
  AllocatorWorld world;
  world.alloc("small", 1_MiB);
  EXPECT_EQ(world.reserved(), 2_MiB);
  world.alloc("medium", 1048577_B);
  EXPECT_EQ(world.reserved(), 22_MiB);
  world.alloc("large", 21_MiB);
  EXPECT_EQ(world.reserved(), 44_MiB) << "from 10 MiB on: rounded to 2 MiB";
}

TEST(Segments, OfMediumBlocksHaveTheConfiguredSize) {
  AllocatorWorld world("large_segment_size_mb:64");
  world.alloc("medium", 2_MiB);
  EXPECT_EQ(world.reserved(), 64_MiB);
}

TEST(BestFit, TakesTheSmallestBlockAndTheLowestOfEqualOnes) {
  AllocatorWorld world("", 64_GiB, {2, 11});
  for (const char* name : {"a", "b", "c"}) world.alloc(name, 40_MiB);
  world.alloc("d", 30_MiB);
  const std::uint64_t lowest = std::min({world.at("a"), world.at("b"), world.at("c")});
  for (const char* name : {"a", "b", "c", "d"}) world.free(name);
  world.alloc("e", 29_MiB);
  EXPECT_EQ(world.at("e"), world.at("d"));
  world.alloc("f", 39_MiB);
  EXPECT_EQ(world.at("f"), lowest);
}

TEST(Splitting, OfLargeBlocksLeavesMoreThanAMegabyte) {
  AllocatorWorld world;
  world.alloc("a", 20_MiB);
  world.free("a");
  world.alloc("b", 19_MiB);
  EXPECT_EQ(world.size("b"), 20_MiB) << "one MiB left is too little";
  world.free("b");
  world.alloc("c", 18_MiB);
  EXPECT_EQ(world.size("c"), 18_MiB);
}

TEST(Splitting, CountsTheRestAsInactiveSplit) {
  AllocatorWorld world;
  world.alloc("a", 3_MiB);
  EXPECT_EQ(world.stats().inactive_split[0].current, 1);
  EXPECT_EQ(world.stats().inactive_split_bytes[0].current, (17_MiB).raw());
  world.free("a");
  EXPECT_EQ(world.stats().inactive_split[0].current, 0) << "whole again";
}

TEST(Coalescing, JoinsAFreedBlockWithBothNeighbours) {
  AllocatorWorld world;
  for (const char* name : {"a", "b", "c", "d"}) world.alloc(name, 4_MiB);
  world.free("a");
  world.free("c");
  world.free("b");
  const auto segments = world.allocator->segments();
  ASSERT_EQ(segments.size(), 1u);
  ASSERT_EQ(segments[0].blocks.size(), 3u);
  EXPECT_EQ(segments[0].blocks[0].bytes, 12_MiB);
}

TEST(MaxSplitSize, KeepsLargerBlocksForRequestsOfTheirSize) {
  AllocatorWorld world("max_split_size_mb:100");
  world.alloc("a", 150_MiB);
  world.free("a");
  world.alloc("b", 90_MiB);
  EXPECT_NE(world.at("b"), world.at("a")) << "too small for a block that may not be split";
  world.alloc("c", 131_MiB);
  EXPECT_EQ(world.at("c"), world.at("a")) << "within 20 MiB of it";
  EXPECT_EQ(world.size("c"), 150_MiB);
  EXPECT_EQ(world.stats().oversize_allocations.current, 1);
  EXPECT_EQ(world.stats().oversize_segments.current, 1);
}

TEST(MaxSplitSize, RoundingOfOversizeBlocksCanBeWidened) {
  AllocatorWorld world("max_split_size_mb:100,max_non_split_rounding_mb:60");
  world.alloc("a", 150_MiB);
  world.free("a");
  world.alloc("b", 101_MiB);
  EXPECT_EQ(world.at("b"), world.at("a"));
}

TEST(MaxSplitSize, ReturnsOnlyWhatIsNeededWhenMemoryRunsOut) {
  AllocatorWorld world("max_split_size_mb:100");
  world.allocator->set_memory_limit(500_MiB);
  world.alloc("a", 150_MiB);
  world.alloc("b", 200_MiB);
  world.free("a");
  world.free("b");
  ASSERT_TRUE(world.alloc("c", 300_MiB));
  EXPECT_EQ(world.stats().num_alloc_retries, 0) << "oversize blocks went first, one by one";
  EXPECT_EQ(world.stats().num_sync_all_streams, 0);
  EXPECT_EQ(world.stats().num_device_free, 2) << "200 MiB were not enough";
}

TEST(GarbageCollection, ReturnsTheOldestBlocksAboveTheThreshold) {
  AllocatorWorld world("garbage_collection_threshold:0.5");
  world.allocator->set_memory_limit(1_GiB);
  world.alloc("old", 300_MiB);
  world.free("old");
  world.alloc("young", 200_MiB, 1);
  for (int i = 0; i < 20; ++i) {
    world.alloc("x", 280_MiB, 1);
    world.free("x");
  }
  world.free("young");
  world.alloc("y", 100_MiB, 3);
  ASSERT_EQ(world.stats().num_device_free, 1);
  EXPECT_EQ(world.changes[world.changes.size() - 2].kind, SegmentChange::Kind::kFree);
  EXPECT_EQ(world.changes[world.changes.size() - 2].bytes, 300_MiB);
  EXPECT_EQ(world.stats().num_alloc_retries, 0);
}

TEST(GarbageCollection, NeedsALimit) {
  AllocatorWorld world("garbage_collection_threshold:0.5", 1_GiB);
  world.alloc("a", 600_MiB);
  world.free("a");
  world.alloc("b", 100_MiB, 1);
  EXPECT_EQ(world.stats().num_device_free, 0);
}

TEST(Retry, SynchronizesAndReturnsWhatWaited) {
  AllocatorWorld world;
  world.allocator->set_memory_limit(100_MiB);
  world.alloc("a", 90_MiB);
  world.allocator->record_stream(world.blocks["a"].address, StreamId(1));
  world.free("a");
  ASSERT_TRUE(world.alloc("b", 95_MiB));
  EXPECT_EQ(world.stats().num_alloc_retries, 1);
  EXPECT_EQ(world.stats().num_sync_all_streams, 1);
  EXPECT_EQ(world.active(), 96_MiB);
}

TEST(Limit, OfAFractionIsOfTheDevice) {
  AllocatorWorld world("", 1_GiB);
  world.allocator->set_memory_fraction(0.25);
  EXPECT_EQ(world.allocator->memory_limit(), 256_MiB);
  world.allocator->set_memory_fraction(1.0);
  EXPECT_FALSE(world.allocator->memory_limit().has_value());
}

TEST(Limit, CanComeWithTheSettings) {
  AllocatorWorld world("per_process_memory_fraction:0.5", 1_GiB);
  EXPECT_EQ(world.allocator->memory_limit(), 512_MiB);
}

TEST(Limit, OfTheDeviceCanRejectBeforeTheCacheIsGivenBack) {
  AllocatorWorld world("throw_on_cudamalloc_oom:True", 1_GiB);
  world.alloc("a", 900_MiB);
  world.free("a");
  EXPECT_FALSE(world.alloc("b", 1000_MiB));
  EXPECT_EQ(world.stats().num_oom_rejections, 1);
  EXPECT_EQ(world.stats().num_ooms, 0) << "torch counts these apart";
  EXPECT_EQ(world.stats().num_device_free, 0);
  const OutOfMemoryInfo info = *world.allocator->out_of_memory();
  EXPECT_TRUE(info.rejected);
  EXPECT_EQ(out_of_memory_message(info),
            "CUDA out of memory. Allocation was preemptively rejected because it would exceed "
            "per_process_memory_fraction limit. Requested size: 1000.00 MiB");
}

// torch looks at the limit that holds first, and has one wherever the settings name a share.
TEST(Limit, ThatIsSetGivesTheCacheBackAndRejectsNothing) {
  for (const char* conf : {"throw_on_cudamalloc_oom:True",
                           "throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.1"}) {
    AllocatorWorld world(conf, 1000_MiB);
    world.allocator->set_memory_limit(100_MiB);
    world.alloc("a", 80_MiB);
    world.free("a");
    EXPECT_TRUE(world.alloc("b", 90_MiB)) << conf;
    EXPECT_EQ(world.stats().num_oom_rejections, 0) << conf;
    EXPECT_EQ(world.stats().num_alloc_retries, 1) << conf;
  }
}

TEST(StreamPolicy, OtherStreamsCanCountAsDoneByTheNextAllocation) {
  AllocatorWorld world;
  world.allocator->set_stream_policy(StreamPolicy::kNextAllocation);
  world.alloc("a", 30_MiB);
  world.allocator->record_stream(world.blocks["a"].address, StreamId(1));
  world.free("a");
  EXPECT_EQ(world.active(), 30_MiB);
  world.alloc("b", 30_MiB);
  EXPECT_EQ(world.at("b"), world.at("a"));
}

TEST(StreamUses, OfSeveralStreamsMustAllBeDone) {
  AllocatorWorld world;
  world.alloc("a", 30_MiB);
  world.allocator->record_stream(world.blocks["a"].address, StreamId(1));
  world.allocator->record_stream(world.blocks["a"].address, StreamId(2));
  world.free("a");
  world.allocator->stream_done(StreamId(1));
  world.alloc("b", 1_MiB);
  EXPECT_EQ(world.active(), 31_MiB);
  world.allocator->stream_done(StreamId(2));
  world.alloc("c", 1_MiB);
  EXPECT_EQ(world.active(), 2_MiB);
}

TEST(Expandable, GrowsOneSegmentPageByPage) {
  AllocatorWorld world("expandable_segments:True");
  world.alloc("a", 30_MiB);
  world.alloc("b", 30_MiB);
  EXPECT_EQ(world.reserved(), 60_MiB) << "three pages of 20 MiB";
  EXPECT_EQ(world.at("b"), world.at("a") + static_cast<std::uint64_t>((30_MiB).raw()));
  EXPECT_EQ(world.allocator->segments().size(), 1u);
  EXPECT_EQ(world.stats().segment[0].current, 0) << "torch counts no segments here";
}

TEST(Expandable, UnmapsWholePagesOnly) {
  AllocatorWorld world("expandable_segments:True");
  world.alloc("a", 30_MiB);
  world.alloc("b", 60_MiB);
  world.alloc("c", 30_MiB);
  world.free("b");
  world.allocator->empty_cache();
  EXPECT_EQ(world.reserved(), 80_MiB) << "pages 2 and 3 of six are free as a whole";
  world.alloc("d", 50_MiB);
  EXPECT_EQ(world.reserved(), 120_MiB) << "the hole is filled first";
  EXPECT_EQ(world.at("d"), world.at("b"));
}

TEST(PrivatePool, ServesCapturesAndKeepsItsMemoryUntilReleased) {
  AllocatorWorld world;
  world.alloc("eager", 30_MiB);
  world.free("eager");
  const auto on_one = [](StreamId stream) { return stream == StreamId(1); };
  ASSERT_TRUE(world.allocator->begin_pool(PoolId(1), on_one));
  EXPECT_FALSE(world.allocator->begin_pool(PoolId(1), on_one)) << "already being filled";
  world.alloc("captured", 30_MiB, 1);
  world.alloc("outside", 30_MiB, 0);
  EXPECT_EQ(world.at("outside"), world.at("eager")) << "another stream";
  ASSERT_TRUE(world.allocator->end_pool(PoolId(1)));
  EXPECT_FALSE(world.allocator->end_pool(PoolId(1)));
  world.free("captured");
  world.allocator->empty_cache();
  EXPECT_EQ(world.reserved(), 60_MiB) << "the graph may still be replayed";
  ASSERT_TRUE(world.allocator->release_pool(PoolId(1)));
  EXPECT_FALSE(world.allocator->release_pool(PoolId(1)));
  world.allocator->empty_cache();
  EXPECT_EQ(world.reserved(), 30_MiB);
}

// Found by fuzzing: the pool went away while allocations were still led to it.
TEST(PrivatePool, IsHeldByTheCaptureThatFillsIt) {
  AllocatorWorld world;
  world.allocator->begin_pool(PoolId(1), nullptr);
  EXPECT_FALSE(world.allocator->release_pool(PoolId(1)));
  world.allocator->retain_pool(PoolId(1));
  EXPECT_TRUE(world.allocator->release_pool(PoolId(1)));
  world.allocator->empty_cache();
  EXPECT_TRUE(world.alloc("a", 1_MiB));
  world.allocator->end_pool(PoolId(1));
  EXPECT_TRUE(world.allocator->release_pool(PoolId(1)));
}

TEST(PrivatePool, CaptureForbidsTheRetry) {
  AllocatorWorld world;
  world.allocator->set_memory_limit(100_MiB);
  world.alloc("a", 90_MiB);
  world.free("a");
  world.allocator->begin_pool(PoolId(1), nullptr);
  EXPECT_FALSE(world.alloc("b", 90_MiB));
  EXPECT_EQ(world.stats().num_alloc_retries, 0);
  world.allocator->end_pool(PoolId(1));
  EXPECT_TRUE(world.alloc("c", 80_MiB));
}

TEST(PrivatePool, OfAMemPoolMayRetryFromTorch213On) {
  for (const TorchVersion torch : {TorchVersion{2, 12}, TorchVersion{2, 13}}) {
    AllocatorWorld world("", 64_GiB, torch);
    world.allocator->set_memory_limit(100_MiB);
    world.alloc("a", 90_MiB);
    world.free("a");
    world.allocator->begin_pool(PoolId(1), nullptr, PoolUse::kMemPool);
    EXPECT_EQ(world.alloc("b", 90_MiB), (torch >= TorchVersion{2, 13}));
  }
}

TEST(PrivatePool, GoesBackToACheckpoint) {
  AllocatorWorld world;
  world.allocator->begin_pool(PoolId(1), nullptr);
  world.alloc("first", 4_MiB);
  world.alloc("kept", 4_MiB);
  world.free("first");
  const std::optional<PoolCheckpoint> checkpoint = world.allocator->checkpoint_pool(PoolId(1));
  ASSERT_TRUE(checkpoint);
  world.free("kept");
  world.alloc("later", 10_MiB);
  const Address later(world.at("later"));
  const Bytes reserved = world.reserved();
  const std::optional<PoolRestored> restored = world.allocator->restore_pool(*checkpoint);
  ASSERT_TRUE(restored);
  EXPECT_EQ(restored->freed, std::vector<Address>{later});
  ASSERT_EQ(restored->created.size(), 1u);
  EXPECT_EQ(restored->created[0].address.raw(), world.at("kept"));
  EXPECT_EQ(restored->created[0].bytes, 4_MiB);
  EXPECT_EQ(world.stats().allocated_bytes[0].current, (4_MiB).raw());
  EXPECT_EQ(world.reserved(), reserved);
  world.alloc("again", 4_MiB);
  EXPECT_EQ(world.at("again"), world.at("first")) << "the hole of then is there again";
  world.allocator->end_pool(PoolId(1));
  EXPECT_FALSE(world.allocator->checkpoint_pool(PoolId(2)));
}

TEST(PrivatePool, IsEmptiedAloneWhenAMemPoolEnds) {
  AllocatorWorld world;
  world.alloc("outside", 30_MiB);
  world.free("outside");
  world.allocator->retain_pool(PoolId(1));
  world.allocator->begin_pool(PoolId(1), nullptr, PoolUse::kMemPool);
  world.alloc("inside", 30_MiB);
  world.allocator->end_pool(PoolId(1));
  world.free("inside");
  world.allocator->release_pool(PoolId(1));
  world.allocator->release_pool(PoolId(1));
  world.allocator->empty_pool(PoolId(1));
  EXPECT_EQ(world.reserved(), 30_MiB);
  EXPECT_TRUE(world.allocator->retain_pool(PoolId(1))) << "gone, so it can be made anew";
}

TEST(PrivatePool, FreeBytesInItShowInTheMessage) {
  AllocatorWorld world("", 1_GiB);
  world.allocator->begin_pool(PoolId(1), nullptr);
  world.alloc("a", 100_MiB);
  world.free("a");
  world.allocator->end_pool(PoolId(1));
  EXPECT_FALSE(world.alloc("b", 2_GiB));
  const OutOfMemoryInfo info = *world.allocator->out_of_memory();
  EXPECT_EQ(info.private_pools, 100_MiB);
  EXPECT_NE(out_of_memory_message(info).find(
                "100.00 MiB is allocated by PyTorch, with 100.00 MiB allocated in private pools"),
            std::string::npos);
}

TEST(Stats, PeaksAndTotalsResetApart) {
  AllocatorWorld world;
  world.alloc("a", 30_MiB);
  world.free("a");
  world.alloc("b", 10_MiB);
  world.allocator->reset_peak_stats();
  EXPECT_EQ(world.stats().allocated_bytes[0].peak, (10_MiB).raw());
  EXPECT_EQ(world.stats().allocated_bytes[0].allocated, (40_MiB).raw());
  world.allocator->reset_accumulated_stats();
  EXPECT_EQ(world.stats().allocated_bytes[0].allocated, 0);
  EXPECT_EQ(world.stats().allocated_bytes[0].current, (10_MiB).raw());
}

TEST(Stats, NamesAreThoseOfTheRelease) {
  const AllocatorStats stats;
  const auto has = [&](TorchVersion torch) {
    for (const auto& [name, value] : stats.named(torch)) {
      if (name == "num_oom_rejections") return true;
    }
    return false;
  };
  EXPECT_FALSE(has({2, 11}));
  EXPECT_TRUE(has({2, 13}));
}

}  // namespace
}  // namespace peakline::testing
