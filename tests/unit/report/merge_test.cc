#include <gtest/gtest.h>

#include <peakline/merge.h>

namespace peakline {
namespace {

RankUse rank(std::int64_t number, Bytes activations, Bytes parameters = 10_MiB) {
  RankUse use;
  use.rank = number;
  use.file = "run." + std::to_string(number) + ".peak";
  use.peak_allocated = activations + parameters;
  use.by_category = {{"Activation", activations}, {"Parameter", parameters}};
  use.modules = {{"net", activations + parameters}, {"net.head", activations}};
  return use;
}

TEST(RankMerge, TheHighestTheLowestAndTheMeanAreKnown) {
  RankMerge merge;
  for (const std::int64_t number : {2, 0, 1}) {
    merge.add(rank(number, Bytes((10 + number) << 20)));
  }
  EXPECT_EQ(merge.count(), 3U);
  EXPECT_EQ(merge.worst()->rank, 2);
  EXPECT_EQ(merge.lowest()->rank, 0);
  EXPECT_EQ(merge.mean(), 21_MiB);
  EXPECT_TRUE(merge.warnings().empty());
}

TEST(RankMerge, TheReasonIsTheCategoryAndTheModuleThatDiffer) {
  RankMerge merge;
  merge.add(rank(0, 10_MiB));
  merge.add(rank(1, 30_MiB));
  const std::vector<Difference> categories = merge.by_category();
  ASSERT_EQ(categories.size(), 1U);  // parameters are alike
  EXPECT_EQ(categories[0].name, "Activation");
  EXPECT_EQ(categories[0].worst, 30_MiB);
  EXPECT_EQ(categories[0].other, 20_MiB);
  ASSERT_EQ(merge.by_module().size(), 2U);
  EXPECT_EQ(merge.by_module()[0].worst - merge.by_module()[0].other, 20_MiB);
}

TEST(RankMerge, OfEqualRanksTheFirstIsNamedWhateverTheOrderOfFiles) {
  for (const bool forwards : {true, false}) {
    RankMerge merge;
    for (int i = 0; i < 4; ++i) merge.add(rank(forwards ? i : 3 - i, 1_MiB));
    EXPECT_EQ(merge.worst()->rank, 0);
    EXPECT_TRUE(merge.by_category().empty());
  }
}

TEST(RankMerge, MissingCutUnreadableAndDoubleRanksAreNamed) {
  RankMerge merge;
  RankUse cut = rank(5, 1_MiB);
  cut.cut = true;
  cut.world_size = 8;
  merge.add(cut);
  merge.add(rank(0, 1_MiB));
  merge.add(rank(0, 99_MiB));
  merge.add_unreadable("run.7.peak", invalid_input("run.7.peak is no recording"));
  EXPECT_EQ(merge.count(), 2U);
  EXPECT_EQ(merge.missing(), "1-4, 6-7");
  EXPECT_EQ(merge.missing_count(), 6U);
  EXPECT_EQ(merge.worst()->peak_allocated, 11_MiB);  // the second recording of rank 0 is left out
  const std::vector<std::string> warnings = merge.warnings();
  ASSERT_EQ(warnings.size(), 4U);
  EXPECT_NE(warnings[1].find("run.5.peak"), std::string::npos);
  EXPECT_NE(warnings[2].find("run.7.peak"), std::string::npos);
}

TEST(RankSet, StretchesGrowTogether) {
  RankSet set;
  for (const std::int64_t number : {0, 2, 1, 9, 7, 8}) EXPECT_TRUE(set.insert(number));
  EXPECT_FALSE(set.insert(1));
  EXPECT_EQ(set.size(), 6U);
  EXPECT_EQ(set.missing(10), "3-6");
  EXPECT_EQ(set.missing(12), "3-6, 10-11");
  EXPECT_EQ(set.end(), 10);
}

TEST(RankInName, IsTheNumberBeforeTheSuffix) {
  EXPECT_EQ(rank_in_name("a/run.17.peak"), 17);
  EXPECT_EQ(rank_in_name("run.peak"), -1);
  EXPECT_EQ(rank_in_name("run.x1.peak"), -1);
  EXPECT_EQ(rank_in_name(".17.peak"), 17);
  EXPECT_EQ(rank_in_name("peak"), -1);
}

}  // namespace
}  // namespace peakline
