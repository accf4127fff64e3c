// What every caching allocator of torch's kind does, whatever its settings. Subjects join with a
// factory of CachingAllocators: see allocator_suite_test.cc.
#pragma once

#include <gtest/gtest.h>

#include <random>

#include "allocator_fixture.h"

namespace peakline::testing {

struct SuiteSubject {
  const char* name;
  const char* conf;
  TorchVersion torch;
};

inline std::ostream& operator<<(std::ostream& out, const SuiteSubject& s) { return out << s.name; }

class AllocatorSuite : public ::testing::TestWithParam<SuiteSubject> {
 protected:
  AllocatorWorld world{GetParam().conf, 64_GiB, GetParam().torch};
};

TEST_P(AllocatorSuite, AFreedBlockIsUsedAgainForTheSameSize) {
  for (const Bytes size : {100_B, 700_KiB, 3_MiB, 40_MiB}) {
    ASSERT_TRUE(world.alloc("a", size));
    const std::uint64_t address = world.at("a");
    world.free("a");
    ASSERT_TRUE(world.alloc("b", size));
    EXPECT_EQ(world.at("b"), address) << size.raw();
    world.free("b");
  }
}

TEST_P(AllocatorSuite, NothingIsReturnedToTheDriverByAFree) {
  world.alloc("a", 30_MiB);
  const Bytes reserved = world.reserved();
  world.free("a");
  EXPECT_EQ(world.reserved(), reserved);
  EXPECT_EQ(world.allocated(), Bytes{});
}

TEST_P(AllocatorSuite, EmptyCacheReturnsEverythingThatIsFree) {
  world.alloc("a", 30_MiB);
  world.alloc("b", 100_B);
  world.free("a");
  world.free("b");
  world.allocator->empty_cache();
  EXPECT_EQ(world.reserved(), Bytes{});
  EXPECT_EQ(world.device->free(), world.device->total());
  EXPECT_TRUE(world.allocator->segments().empty());
}

TEST_P(AllocatorSuite, StreamsDoNotShareBlocks) {
  world.alloc("a", 30_MiB, 1);
  world.free("a");
  world.alloc("b", 30_MiB, 2);
  EXPECT_NE(world.at("b"), world.at("a"));
}

TEST_P(AllocatorSuite, ABlockUsedOnAnotherStreamWaitsForIt) {
  world.alloc("a", 30_MiB);
  world.allocator->record_stream(world.blocks["a"].address, StreamId(5));
  world.free("a");
  EXPECT_EQ(world.allocated(), Bytes{});
  EXPECT_GT(world.active(), Bytes{});
  world.alloc("b", 30_MiB);
  EXPECT_NE(world.at("b"), world.at("a"));
  world.allocator->stream_done(StreamId(5));
  world.alloc("c", 30_MiB);
  EXPECT_EQ(world.at("c"), world.at("a"));
}

TEST_P(AllocatorSuite, ItsOwnStreamIsNoOtherStream) {
  world.alloc("a", 30_MiB, 3);
  world.allocator->record_stream(world.blocks["a"].address, StreamId(3));
  world.free("a");
  EXPECT_EQ(world.active(), Bytes{});
}

TEST_P(AllocatorSuite, ALimitIsKeptAfterGivingTheCacheBack) {
  world.allocator->set_memory_limit(200_MiB);
  ASSERT_TRUE(world.alloc("a", 100_MiB, 1));
  world.free("a");
  ASSERT_TRUE(world.alloc("b", 160_MiB, 2)) << "the cached 100 MiB of stream 1 can go";
  EXPECT_EQ(world.stats().num_ooms, 0);
  EXPECT_FALSE(world.alloc("c", 100_MiB));
  EXPECT_EQ(world.stats().num_ooms, 1);
  ASSERT_TRUE(world.allocator->out_of_memory().has_value());
  EXPECT_EQ(world.allocator->out_of_memory()->requested, 100_MiB);
  EXPECT_EQ(world.allocator->out_of_memory()->limit, 200_MiB);
}

TEST_P(AllocatorSuite, AFullDeviceIsTheEnd) {
  AllocatorWorld small(GetParam().conf, 400_MiB, GetParam().torch);
  EXPECT_FALSE(small.alloc("a", 1_GiB));
  EXPECT_TRUE(small.alloc("b", 200_MiB));
  EXPECT_EQ(small.stats().num_ooms, 1);
}

TEST_P(AllocatorSuite, AFreeOfNothingIsRefused) {
  EXPECT_FALSE(world.allocator->free(Address(12345)));
  world.alloc("a", 1_MiB);
  EXPECT_TRUE(world.allocator->free(world.blocks["a"].address));
  EXPECT_FALSE(world.allocator->free(world.blocks["a"].address));
  EXPECT_FALSE(world.allocator->complete_free(world.blocks["a"].address));
  EXPECT_FALSE(world.allocator->record_stream(world.blocks["a"].address, StreamId(1)));
}

TEST_P(AllocatorSuite, AnAbsurdRequestFailsWithoutHarm) {
  EXPECT_FALSE(world.alloc("a", Bytes(std::numeric_limits<std::int64_t>::max())));
  EXPECT_FALSE(world.alloc("b", 100000_GiB));
  EXPECT_TRUE(world.alloc("c", 1_MiB));
  EXPECT_EQ(broken_rule(*world.allocator), "");
}

TEST_P(AllocatorSuite, RulesHoldAfterEveryStepOfARandomProgram) {
  std::mt19937_64 random(11);
  std::vector<Address> live;
  std::vector<Address> waiting;
  world.allocator->set_memory_limit(2_GiB);
  for (int i = 0; i < 4000; ++i) {
    switch (random() % 12) {
      case 0:
        if (!live.empty()) {
          world.allocator->record_stream(live[random() % live.size()],
                                         StreamId(static_cast<std::uint32_t>(random() % 3)));
        }
        break;
      case 1:
        if (random() % 20 == 0) world.allocator->empty_cache();
        break;
      case 2:
        world.allocator->stream_done(StreamId(static_cast<std::uint32_t>(random() % 3)));
        break;
      case 3:
      case 4:
      case 5:
      case 6: {
        if (live.empty()) break;
        const std::size_t at = random() % live.size();
        ASSERT_TRUE(world.allocator->free(live[at]));
        live[at] = live.back();
        live.pop_back();
        break;
      }
      default: {
        const auto size = static_cast<std::int64_t>(random() >> (36 + random() % 27)) + 1;
        const Allocation got = world.allocator->allocate(
            Bytes(size), StreamId(static_cast<std::uint32_t>(random() % 3)));
        if (got.ok()) live.push_back(got.address);
      }
    }
    ASSERT_EQ(broken_rule(*world.allocator), "") << "step " << i;
  }
  EXPECT_GT(world.stats().num_alloc_retries, 0);
}

}  // namespace peakline::testing
