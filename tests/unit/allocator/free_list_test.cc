#include "allocator/free_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace peakline {
namespace {

std::vector<FreeKey> keys_of(const FreeList& list) {
  std::vector<FreeKey> keys;
  for (auto cursor = list.first(); !cursor.at_end(); cursor.advance()) keys.push_back(cursor.key());
  return keys;
}

TEST(FreeList, OrdersBySizeThenByAddress) {
  FreeList list;
  list.insert(free_key(2048, 512, 1));
  list.insert(free_key(1024, 4096, 2));
  list.insert(free_key(1024, 512, 3));
  std::vector<std::uint32_t> blocks;
  for (const FreeKey key : keys_of(list)) blocks.push_back(block_of(key));
  EXPECT_EQ(blocks, (std::vector<std::uint32_t>{3, 2, 1}));
  EXPECT_EQ(size_of(list.last().key()), 2048u);
}

TEST(FreeList, KeepsSizesAndAddressesOfWholeDevicesApart) {
  const std::uint64_t size = std::uint64_t{1} << 40;
  const std::uint64_t address = std::uint64_t{1} << 47;
  const FreeKey key = free_key(size, address, 7);
  EXPECT_EQ(size_of(key), size);
  EXPECT_EQ(block_of(key), 7u);
  EXPECT_LT(key, free_key(size + 512, 0, 0));
}

TEST(FreeList, RetreatingFromTheFirstPlaceEndsTheWalk) {
  FreeList list;
  list.insert(free_key(512, 512, 1));
  auto cursor = list.first();
  cursor.retreat();
  EXPECT_TRUE(cursor.at_end());
}

TEST(FreeList, AnEmptyListHasNoPlaces) {
  FreeList list;
  EXPECT_TRUE(list.first().at_end());
  EXPECT_TRUE(list.last().at_end());
  EXPECT_TRUE(list.lower_bound({}).at_end());
}

// Windows of sizes that move up and down empty leaves at both ends, where separators can go stale.
TEST(FreeList, AgreesWithASetWhileItsSizesDrift) {
  std::mt19937_64 random(7);
  FreeList list;
  std::set<FreeKey> model;
  for (int i = 0; i < 200'000; ++i) {
    const std::uint64_t window = (static_cast<std::uint64_t>(i) / 500) % 40;
    const auto any_key = [&] {
      const std::uint64_t size = (window * 17 % 40 + random() % 6 + 1) * 512;
      return free_key(size, (random() % 64 + 1) * 512, static_cast<std::uint32_t>(random() % 2));
    };
    const FreeKey key = any_key();
    const bool grows = (i / 3000) % 2 == 0;
    if (random() % 10 < (grows ? 8 : 1)) {
      if (model.insert(key).second) list.insert(key);
    } else if (!model.empty()) {
      // Erase from the low end as often as anywhere.
      const auto it = random() % 2 == 0 ? model.begin() : model.lower_bound(key);
      if (it != model.end()) {
        if (random() % 3 == 0) {
          // A change of one key, as splitting and joining blocks do it.
          const FreeKey other = any_key();
          if (model.contains(other)) continue;
          list.replace(*it, other);
          model.erase(it);
          model.insert(other);
        } else if (random() % 2 == 0) {
          list.erase(list.lower_bound(*it));
          model.erase(it);
        } else {
          list.erase(*it);
          model.erase(it);
        }
      }
    }
    const FreeKey wanted = any_key();
    const auto expected = model.lower_bound(wanted);
    const auto found = list.lower_bound(wanted);
    ASSERT_EQ(found.at_end(), expected == model.end()) << "step " << i;
    if (!found.at_end()) {
      ASSERT_TRUE(found.key() == *expected) << "step " << i;
    }
    const auto of_size = list.first_of_size(size_of(wanted));
    const auto expected_of_size = model.lower_bound(free_key(size_of(wanted), 0, 0));
    ASSERT_EQ(of_size.at_end(), expected_of_size == model.end());
    if (!of_size.at_end()) {
      ASSERT_TRUE(of_size.key() == *expected_of_size) << "step " << i;
    }
    ASSERT_EQ(list.size(), model.size());
    if (i % 5000 == 0) {
      ASSERT_TRUE(keys_of(list) == std::vector(model.begin(), model.end()));
    }
  }
}

TEST(FreeList, WalksBackwardsOverManyLeaves) {
  FreeList list;
  std::vector<FreeKey> keys;
  for (std::uint32_t i = 0; i < 5000; ++i) {
    keys.push_back(free_key(512 * (i + 1), 512, i));
    list.insert(keys.back());
  }
  std::vector<FreeKey> backwards;
  for (auto cursor = list.last(); !cursor.at_end(); cursor.retreat())
    backwards.push_back(cursor.key());
  std::ranges::reverse(backwards);
  EXPECT_TRUE(backwards == keys);
}

}  // namespace
}  // namespace peakline
