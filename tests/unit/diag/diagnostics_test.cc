#include <gtest/gtest.h>

#include <set>

#include <peakline/diagnostics.h>

namespace peakline {
namespace {

TEST(Diagnostics, CountsEachKindByItself) {
  Diagnostics diagnostics;
  EXPECT_TRUE(diagnostics.empty());
  diagnostics.count(Loss::kUnknownBlock);
  diagnostics.count(Loss::kUnknownBlock, 4);
  EXPECT_EQ(diagnostics.of(Loss::kUnknownBlock), 5u);
  EXPECT_EQ(diagnostics.of(Loss::kBlockTwice), 0u);
  EXPECT_FALSE(diagnostics.empty());
}

TEST(Diagnostics, NothingCountedIsNothingLost) {
  Diagnostics diagnostics;
  diagnostics.count(Loss::kTruncatedTail, 0);
  EXPECT_TRUE(diagnostics.empty());
  EXPECT_TRUE(diagnostics.sentences().empty());
}

TEST(Diagnostics, MergingAdds) {
  Diagnostics left;
  Diagnostics right;
  left.count(Loss::kUnknownBlock, 2);
  right.count(Loss::kUnknownBlock, 3);
  right.count(Loss::kNoTrailer);
  left.merge(right);
  EXPECT_EQ(left.of(Loss::kUnknownBlock), 5u);
  EXPECT_EQ(left.of(Loss::kNoTrailer), 1u);
}

TEST(Diagnostics, SaysEachKindInOneSentenceWithItsCount) {
  Diagnostics diagnostics;
  diagnostics.count(Loss::kUnknownBlock, 7);
  diagnostics.count(Loss::kUnknownRecord, 2);
  const std::vector<std::string> sentences = diagnostics.sentences();
  ASSERT_EQ(sentences.size(), 2u);
  EXPECT_EQ(sentences[0],
            "2 records of a newer peakline were skipped: update peakline to see them");
  EXPECT_EQ(sentences[1], "7 events name a block that is not alive");
}

TEST(Diagnostics, OneOfAKindIsSaidInTheSingular) {
  Diagnostics diagnostics;
  diagnostics.count(Loss::kUnknownRecord, 1);
  diagnostics.count(Loss::kUnknownBlock, 1);
  const std::vector<std::string> sentences = diagnostics.sentences();
  ASSERT_EQ(sentences.size(), 2u);
  EXPECT_EQ(sentences[0], "1 record of a newer peakline was skipped: update peakline to see it");
  EXPECT_EQ(sentences[1], "1 event names a block that is not alive");
}

TEST(Diagnostics, NoSentenceShowsItsBrackets) {
  for (const std::uint64_t count : {1, 2}) {
    Diagnostics diagnostics;
    for (std::size_t i = 0; i < static_cast<std::size_t>(Loss::kCount_); ++i) {
      diagnostics.count(static_cast<Loss>(i), count);
    }
    for (const std::string& sentence : diagnostics.sentences()) {
      EXPECT_EQ(sentence.find_first_of("[|]"), std::string::npos) << sentence;
    }
  }
}

TEST(Diagnostics, EveryKindIsFoundByItsNameAndNamesAreUnique) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < static_cast<std::size_t>(Loss::kCount_); ++i) {
    const auto loss = static_cast<Loss>(i);
    EXPECT_EQ(Diagnostics::find(Diagnostics::name(loss)), loss);
    EXPECT_TRUE(names.insert(Diagnostics::name(loss)).second);
  }
  EXPECT_EQ(Diagnostics::find("no such thing"), Loss::kCount_);
}

}  // namespace
}  // namespace peakline
