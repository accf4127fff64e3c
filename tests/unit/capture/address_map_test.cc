#include "capture/address_map.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace peakline::capture {
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

TEST(AddressMap, NoAddressIsNeverFound) {
  AddressMap<Block> map;
  EXPECT_EQ(map.find(0), nullptr);
}

}  // namespace
}  // namespace peakline::capture
