#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include <peakline/address_map.h>

namespace peakline {
namespace {

struct Block {
  std::uint64_t address = 0;
  std::uint64_t number = 0;
};

TEST(AddressMap, AnswersAsAnOrdinaryMapWould) {
  std::mt19937_64 random(7);
  std::map<std::uint64_t, std::uint64_t> model;
  std::vector<std::uint64_t> live;
  AddressMap<Block> map;
  for (std::uint64_t i = 1; i < 200'000; ++i) {
    const bool add = live.size() < 3000 ? random() % 3 != 0 : random() % 3 == 0;
    if (add || live.empty()) {
      const std::uint64_t address = (random() % 100'000 + 1) * 64;
      if (model.contains(address)) continue;
      map.insert({.address = address, .number = i});
      model[address] = i;
      live.push_back(address);
    } else {
      const std::size_t which = random() % live.size();
      map.erase(map.find(live[which]));
      model.erase(live[which]);
      live[which] = live.back();
      live.pop_back();
    }
  }
  ASSERT_EQ(map.size(), model.size());
  for (const auto& [address, block] : model) {
    ASSERT_NE(map.find(address), nullptr);
    EXPECT_EQ(map.find(address)->number, block);
  }
  for (std::uint64_t address = 64; address < 6'400'000; address += 64) {
    EXPECT_EQ(map.find(address) != nullptr, model.contains(address));
  }
}

TEST(AddressMap, EntriesThatMoveBackAreStillFound) {
  std::mt19937_64 random(3);
  AddressMap<Block> map;
  std::map<std::uint64_t, std::uint64_t> model;
  for (std::uint64_t i = 0; i < 300'000; ++i) {
    // Few addresses, close together: chains that wrap around and move back.
    const std::uint64_t address = 512 * (1 + random() % 700);
    if (model.erase(address) == 1) {
      map.erase(map.find(address));
    } else {
      map.insert({.address = address, .number = i});
      model.emplace(address, i);
    }
    const std::uint64_t other = 512 * (1 + random() % 700);
    const Block* found = map.find(other);
    ASSERT_EQ(found != nullptr, model.contains(other)) << "step " << i;
    if (found != nullptr) {
      ASSERT_EQ(found->number, model.at(other)) << "step " << i;
    }
    ASSERT_EQ(map.size(), model.size());
  }
}

TEST(AddressMap, NoAddressIsNeverFound) {
  AddressMap<Block> map;
  EXPECT_EQ(map.find(0), nullptr);
}

}  // namespace
}  // namespace peakline
