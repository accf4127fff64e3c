#include "allocator/address_map.h"

#include <gtest/gtest.h>

#include <random>
#include <unordered_map>

namespace peakline {
namespace {

TEST(AddressMap, ForgetsWhatIsTaken) {
  AddressMap map;
  map.insert(512, 3);
  EXPECT_EQ(map.find(512), 3u);
  EXPECT_EQ(map.take(512), 3u);
  EXPECT_EQ(map.take(512), AddressMap::kNone);
  EXPECT_EQ(map.size(), 0u);
}

TEST(AddressMap, AgreesWithAStandardMapWhileEntriesMove) {
  std::mt19937_64 random(3);
  AddressMap map;
  std::unordered_map<std::uint64_t, std::uint32_t> model;
  for (int i = 0; i < 300'000; ++i) {
    // Few addresses, close together: chains that wrap around and move back.
    const std::uint64_t address = 512 * (1 + random() % 700);
    if (model.contains(address)) {
      ASSERT_EQ(map.take(address), model.at(address)) << "step " << i;
      model.erase(address);
    } else {
      const auto block = static_cast<std::uint32_t>(random() % 1000);
      map.insert(address, block);
      model.emplace(address, block);
    }
    const std::uint64_t other = 512 * (1 + random() % 700);
    const auto it = model.find(other);
    ASSERT_EQ(map.find(other), it == model.end() ? AddressMap::kNone : it->second) << "step " << i;
    ASSERT_EQ(map.size(), model.size());
  }
}

}  // namespace
}  // namespace peakline
