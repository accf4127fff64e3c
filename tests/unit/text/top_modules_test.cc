#include "text/top_modules.h"

#include <gtest/gtest.h>

namespace peakline {
namespace {

ModuleRow holding(std::string path, Bytes peak) {
  ModuleRow row;
  row.path = std::move(path);
  row.peak = peak;
  return row;
}

std::vector<std::string> paths(const std::vector<ModuleRow>& rows, std::size_t most = 12) {
  std::vector<std::string> out;
  for (const ShownModule& shown : top_modules(rows, most)) out.push_back(shown.path);
  return out;
}

using Paths = std::vector<std::string>;

TEST(TopModules, AModuleThatOnlyWrapsAnotherIsLeftOut) {
  EXPECT_EQ(paths({holding("Wrapper", 8_GiB), holding("Wrapper.inner", 8_GiB),
                   holding("Wrapper.inner.a", 3_GiB)}),
            (Paths{"Wrapper.inner", "Wrapper.inner.a"}));
}

TEST(TopModules, LayersThatHoldTheSameAreOneRowAndShownInsideOnce) {
  std::vector<ModuleRow> rows{holding("M", 9_GiB)};
  int number = 0;
  for (const Bytes size : {3_GiB, 2_GiB, 2_GiB, 2_GiB}) {
    const std::string layer = "M.layers." + std::to_string(number++);
    rows.push_back(holding(layer, size));
    rows.push_back(holding(layer + ".mlp", 1_GiB));
  }
  EXPECT_EQ(paths(rows),
            (Paths{"M", "M.layers.0", "M.layers.0.mlp", "M.layers.1-3, each", "M.layers.1.mlp"}));
}

TEST(TopModules, LayersThatHoldAsMuchOfOtherThingsStayApart) {
  std::vector<ModuleRow> rows{holding("M.0", 1_GiB), holding("M.1", 1_GiB)};
  rows[0].by_category = {{"Parameter", 1_GiB}};
  rows[1].by_category = {{"Activation", 1_GiB}};
  EXPECT_EQ(paths(rows), (Paths{"M.0", "M.1"}));
}

TEST(TopModules, TheLargestAreKeptInTheOrderOfTheTree) {
  EXPECT_EQ(paths({holding("M", 9_GiB), holding("M.a", 1_GiB), holding("M.b", 3_GiB),
                   holding("M.c", 2_GiB), holding("M.d", 0_GiB)},
                  3),
            (Paths{"M", "M.b", "M.c"}));
}

TEST(TopModules, NumberedRootsAreLayersToo) {
  EXPECT_EQ(paths({holding("0", 1_GiB), holding("1", 1_GiB)}), (Paths{"0-1, each"}));
}

}  // namespace
}  // namespace peakline
