#include <gtest/gtest.h>

#include <peakline/units.h>

namespace peakline {
namespace {

TEST(ParseSize, ReadsWhatPeopleType) {
  EXPECT_EQ(*parse_size("24GiB"), 24_GiB);
  EXPECT_EQ(*parse_size("24 gib"), 24_GiB);
  EXPECT_EQ(*parse_size("80GB"), Bytes(80'000'000'000));
  EXPECT_EQ(*parse_size("512MiB"), 512_MiB);
  EXPECT_EQ(*parse_size("1.5KiB"), 1536_B);
  EXPECT_EQ(*parse_size(" 7 "), 7_B);
  EXPECT_EQ(*parse_size("2T"), 2048_GiB);
  EXPECT_EQ(*parse_size(format_size(Bytes(std::int64_t{3} << 50))), Bytes(std::int64_t{3} << 50));
}

TEST(ParseSize, RefusesWhatIsNotASizeAndSaysHowToWriteOne) {
  for (const char* text : {"", "GiB", "-1GiB", "12 parsecs", "nan", "inf", "1e40GiB", "1 2"}) {
    const Result<Bytes> size = parse_size(text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_NE(size.status().message().find("24GiB"), std::string::npos);
  }
}

TEST(FormatSize, ShowsFourDigitsInTheLargestUnitThatFits) {
  EXPECT_EQ(format_size(0_B), "0 B");
  EXPECT_EQ(format_size(1023_B), "1023 B");
  EXPECT_EQ(format_size(1_KiB), "1.000 KiB");
  EXPECT_EQ(format_size(Bytes(8384400896)), "7.809 GiB");
  EXPECT_EQ(format_size(Bytes((1LL << 30) - 1)), "1.000 GiB");
  EXPECT_EQ(format_size(Bytes(0) - 3_MiB), "-3.000 MiB");
  EXPECT_EQ(format_size(140_GiB), "140.0 GiB");
}

}  // namespace
}  // namespace peakline
