#include <gtest/gtest.h>

#include <peakline/show_text.h>
#include <peakline/text.h>

namespace peakline {
namespace {

TEST(Wrapped, LinesAfterTheFirstStandUnderItsText) {
  const std::string words(60, 'a');
  EXPECT_EQ(wrapped(words + " " + words, "  - "),
            (std::vector<std::string>{"  - " + words, "    " + words}));
}

TEST(Wrapped, AWordLongerThanALineIsBroken) {
  const std::vector<std::string> lines = wrapped("so " + std::string(170, 'x') + " on", "  ");
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "  so");
  for (const std::string& line : lines) EXPECT_LE(width(line), kColumns);
  EXPECT_EQ(lines[3], "  " + std::string(14, 'x') + " on");
}

TEST(Wrapped, NothingIsNoLine) { EXPECT_TRUE(wrapped("", "  ").empty()); }

TEST(SizeCells, SayNothingAsADashAndGrowthWithItsSign) {
  EXPECT_EQ(dash_or_size(std::nullopt), "-");
  EXPECT_EQ(dash_or_size(0_B), "-");
  EXPECT_EQ(dash_or_size(1_MiB), "1.000 MiB");
  EXPECT_EQ(signed_size(1_MiB), "+1.000 MiB");
  EXPECT_EQ(signed_size(Bytes{} - 1_MiB), "-1.000 MiB");
  EXPECT_EQ(signed_size(0_B), "0 B");
}

TEST(ShowText, GrowthIsShownOfEveryDevice) {
  Summary summary;
  summary.steps_completed = 5;
  summary.devices.resize(2);
  summary.devices[0].name = "cuda:0";
  summary.devices[1].name = "cpu";
  GrowthRow row;
  row.op = "aten::ones";
  row.holder = "main(): kept[…]";
  summary.devices[1].growth = {row};
  ShowOptions options;
  options.by = ShowBy::kGrowth;
  const std::string found = show_text("run.peak", summary, options, Paint(false));
  EXPECT_NE(found.find("\nGrows with every step on cpu\n"), std::string::npos) << found;
  EXPECT_NE(found.find("aten::ones"), std::string::npos) << found;
  EXPECT_NE(found.find("\n    held by main(): kept[…]\n"), std::string::npos) << found;
}

}  // namespace
}  // namespace peakline
