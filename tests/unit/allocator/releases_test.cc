// Rules that changed between releases of torch.
#include <gtest/gtest.h>

#include "allocator_fixture.h"

namespace peakline::testing {
namespace {

constexpr TorchVersion k211{2, 11};
constexpr TorchVersion k212{2, 12};
constexpr TorchVersion k213{2, 13};
constexpr TorchVersion k215{2, 15};

// Gives out segments from the top down, as drivers mostly do.
class Downwards final : public DeviceModel {
 public:
  std::optional<Address> allocate(Bytes bytes) override {
    top_ -= static_cast<std::uint64_t>(bytes.raw());
    return Address(top_);
  }
  void release(Address /*address*/, Bytes /*bytes*/) override {}
  Address reserve_addresses(Bytes bytes) override { return *allocate(bytes); }
  void release_addresses(Address /*address*/, Bytes /*bytes*/) override {}
  bool map(Bytes /*bytes*/) override { return true; }
  void unmap(Bytes /*bytes*/) override {}
  [[nodiscard]] Bytes total() const override { return 64_GiB; }
  [[nodiscard]] Bytes free() const override { return 64_GiB; }

 private:
  std::uint64_t top_ = std::uint64_t{1} << 46;
};

// Of segments a, b and c, each lower than the one before, all free: which is taken?
std::string taken_of_three_segments(TorchVersion torch) {
  Downwards device;
  CachingAllocator allocator(*AllocatorConfig::parse("", torch), device);
  std::map<std::uint64_t, std::string> names;
  for (const char* name : {"a", "b", "c"}) names[allocator.allocate(40_MiB).address.raw()] = name;
  for (const auto& [address, name] : names) allocator.free(Address(address));
  return names.at(allocator.allocate(40_MiB).address.raw());
}

TEST(EqualBlocks, TheLowestSegmentIsTakenBefore212AndTheOldestSince) {
  EXPECT_EQ(taken_of_three_segments(k211), "c");
  EXPECT_EQ(taken_of_three_segments(k212), "a");
  EXPECT_EQ(taken_of_three_segments(k213), "a");
  EXPECT_EQ(taken_of_three_segments(k215), "a");
}

TEST(EqualBlocks, BlocksAreNumberedAsTheyAreCutIn212Alone) {
  for (const TorchVersion torch : {k211, k212, k213}) {
    AllocatorWorld world("", 64_GiB, torch);
    world.alloc("a", 6_MiB);
    world.alloc("wall", 2_MiB);
    world.alloc("b", 6_MiB);
    world.alloc("end", 6_MiB);
    // "a" is cut anew into two, and the front one, which is new, takes both when it is freed last.
    world.free("a");
    world.alloc("front", 2_MiB);
    world.alloc("back", 4_MiB);
    world.free("back");
    world.free("front");
    world.free("b");
    world.alloc("taken", 6_MiB);
    EXPECT_EQ(world.at("taken"), world.at(torch == k212 ? "b" : "a"));
  }
}

TEST(EqualBlocks, AnExpandableSegmentIsOneSegmentWhateverIsUnmappedInIt) {
  for (const TorchVersion torch : {k211, k213}) {
    AllocatorWorld world("expandable_segments:True", 64_GiB, torch);
    for (const char* name : {"a", "wall", "b", "end"}) world.alloc(name, 40_MiB);
    world.free("b");
    world.allocator->empty_cache();
    world.alloc("b", 40_MiB);
    world.free("b");
    world.free("a");
    world.alloc("taken", 40_MiB);
    EXPECT_EQ(world.at("taken"), world.at("a"));
  }
}

TEST(MemPool, DefersFreesLikeACaptureBefore213) {
  for (const TorchVersion torch : {k212, k213}) {
    AllocatorWorld world("", 64_GiB, torch);
    world.allocator->begin_pool(PoolId(1), nullptr, PoolUse::kMemPool);
    world.alloc("a", 30_MiB);
    world.allocator->record_stream(world.blocks["a"].address, StreamId(1));
    world.free("a");
    world.allocator->synchronize();
    world.alloc("b", 30_MiB);
    EXPECT_EQ(world.at("b") == world.at("a"), torch == k213);
  }
}

TEST(MemPool, LetsEmptyCacheReturnWhatIsOutsideFrom213On) {
  for (const TorchVersion torch : {k212, k213}) {
    AllocatorWorld world("", 64_GiB, torch);
    world.alloc("outside", 30_MiB);
    world.free("outside");
    world.allocator->begin_pool(PoolId(1), nullptr, PoolUse::kMemPool);
    world.allocator->empty_cache();
    EXPECT_EQ(world.reserved(), torch == k213 ? Bytes{} : 30_MiB);
  }
}

TEST(Capture, HoldsBackOnlyItsOwnStreamsFrom213On) {
  for (const TorchVersion torch : {k212, k213}) {
    AllocatorWorld world("", 64_GiB, torch);
    world.allocator->set_memory_limit(100_MiB);
    world.alloc("a", 90_MiB);
    world.free("a");
    const auto captured = [](StreamId stream) { return stream == StreamId(1); };
    world.allocator->begin_pool(PoolId(1), captured);
    EXPECT_FALSE(world.alloc("inside", 92_MiB, 1));
    EXPECT_EQ(world.alloc("outside", 92_MiB, 2), torch == k213);
  }
}

TEST(Limit, IsCutToBytesBefore213AndRoundedSince) {
  const Bytes total(1000003);  // nine tenths are 900,002.7
  EXPECT_EQ(
      AllocatorWorld("per_process_memory_fraction:0.9", total, k212).allocator->memory_limit(),
      900002_B);
  EXPECT_EQ(
      AllocatorWorld("per_process_memory_fraction:0.9", total, k213).allocator->memory_limit(),
      900003_B);
  AllocatorWorld world("", total, k213);
  world.allocator->set_memory_fraction(0.9);
  EXPECT_EQ(world.allocator->memory_limit(), 900003_B);
}

TEST(Reserve, OfAnExpandableSegmentBoundsTheLargestBlockFrom215On) {
  AllocatorWorld world("expandable_segments:True,expandable_segments_reserve:1G", 64_GiB, k215);
  EXPECT_FALSE(world.alloc("too large", 2_GiB));
  EXPECT_EQ(world.reserved(), Bytes{}) << "nothing was mapped for it";
  ASSERT_TRUE(world.alloc("first", 800_MiB));
  ASSERT_TRUE(world.alloc("second", 800_MiB));
  EXPECT_EQ(world.allocator->segments().size(), 2u) << "one is too short for both";

  AllocatorWorld half("expandable_segments:True,expandable_segments_reserve:0.5", 4_GiB, k215);
  EXPECT_TRUE(half.alloc("a", 2_GiB));
  EXPECT_FALSE(half.alloc("b", 3_GiB));
  EXPECT_TRUE(AllocatorWorld("expandable_segments:True", 4_GiB, k215).alloc("b", 3_GiB));
}

TEST(Reserve, IsReadAsTorchReadsIt) {
  const auto read = [](const char* text) {
    return AllocatorConfig::parse(text, k215).value().canonical();
  };
  EXPECT_EQ(read("expandable_segments_reserve:0.5"), "expandable_segments_reserve:0.5");
  EXPECT_EQ(read("expandable_segments_reserve:40G"), "expandable_segments_reserve:40G");
  EXPECT_EQ(read("expandable_segments_reserve:2"), "expandable_segments_reserve:1.125");
  EXPECT_EQ(read("expandable_segments_reserve:-1"), "") << "torch warns, and goes on";
  EXPECT_EQ(read("expandable_segments_reserve_by_class:[a:0.25,b:8G],max_split_size_mb:64"),
            "max_split_size_mb:64");
  EXPECT_FALSE(AllocatorConfig::parse("expandable_segments_reserve_by_class:[a:1", k215).ok());
  EXPECT_FALSE(AllocatorConfig::parse("expandable_segments_reserve:0.5", {2, 14}).ok());
}

TEST(AllocatorConfig, BoundsOfPinnedMemoryAreKnownFrom213On) {
  EXPECT_FALSE(AllocatorConfig::parse("pinned_max_cached_size_mb:8", k212).ok());
  EXPECT_TRUE(AllocatorConfig::parse("pinned_max_cached_size_mb:8", k213).ok());
}

}  // namespace
}  // namespace peakline::testing
