#include "base/coding.h"

#include <gtest/gtest.h>

#include <limits>

namespace peakline::coding {
namespace {

constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();

std::vector<std::uint64_t> interesting_numbers() {
  std::vector<std::uint64_t> out{0, kMax};
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t power = std::uint64_t{1} << bit;
    out.insert(out.end(), {power - 1, power, power + 1});
  }
  return out;
}

// As the unchecked reader needs it: with slack behind.
std::vector<std::uint8_t> padded(std::vector<std::uint8_t> bytes, std::uint8_t padding) {
  bytes.resize(bytes.size() + kMaxVarint, padding);
  return bytes;
}

TEST(Zigzag, MakesSmallNumbersOfBothSignsSmall) {
  EXPECT_EQ(zigzag(0), 0u);
  EXPECT_EQ(zigzag(-1), 1u);
  EXPECT_EQ(zigzag(1), 2u);
  EXPECT_EQ(zigzag(std::numeric_limits<std::int64_t>::min()), kMax);
  for (const std::uint64_t number : interesting_numbers()) {
    EXPECT_EQ(zigzag(unzigzag(number)), number);
    const auto value = static_cast<std::int64_t>(number);
    EXPECT_EQ(unzigzag(zigzag(value)), value);
  }
}

TEST(Fixed, IsLittleEndian) {
  std::uint8_t bytes[8];
  EXPECT_EQ(put_fixed(bytes, std::uint32_t{0x04030201}), bytes + 4);
  EXPECT_EQ(bytes[0], 1);
  EXPECT_EQ(bytes[3], 4);
  EXPECT_EQ(get_fixed<std::uint32_t>(bytes), 0x04030201u);
  put_fixed(bytes, kMax - 5);
  EXPECT_EQ(get_fixed<std::uint64_t>(bytes), kMax - 5);
}

TEST(Varint, IsLeb128) {
  std::vector<std::uint8_t> bytes;
  append_varint(bytes, 300);
  EXPECT_EQ(bytes, (std::vector<std::uint8_t>{0xac, 0x02}));
}

TEST(Varint, EveryReaderReadsWhatWasWrittenWhateverFollows) {
  for (const std::uint64_t number : interesting_numbers()) {
    std::vector<std::uint8_t> bytes;
    append_varint(bytes, number);
    const std::size_t size = bytes.size();
    EXPECT_LE(size, kMaxVarint);
    ByteReader reader(bytes);
    EXPECT_EQ(reader.varint(), number);
    EXPECT_TRUE(reader.ok());
    EXPECT_EQ(reader.remaining(), 0u);
    for (const std::uint8_t padding : {0, 0x7f, 0x80, 0xff}) {
      const std::vector<std::uint8_t> slack = padded(bytes, padding);
      std::uint64_t bad = 0;
      const std::uint8_t* at = slack.data();
      EXPECT_EQ(get_varint(at, bad), number);
      EXPECT_EQ(at, slack.data() + size);
      at = slack.data();
      EXPECT_EQ(get_short_varint(at, bad), number);
      EXPECT_EQ(at, slack.data() + size);
      EXPECT_EQ(bad, 0u);
    }
  }
}

TEST(Varint, MoreThan64BitsAreRefusedByEveryReader) {
  const std::vector<std::uint8_t> nines(9, 0xff);
  for (const std::uint8_t last : {0x02, 0x7f, 0x80, 0x81, 0xff}) {
    std::vector<std::uint8_t> bytes = nines;
    bytes.push_back(last);
    bytes.push_back(0);
    ByteReader reader(bytes);
    EXPECT_EQ(reader.varint(), 0u);
    EXPECT_FALSE(reader.ok());
    const std::vector<std::uint8_t> slack = padded(bytes, 0);
    std::uint64_t bad = 0;
    const std::uint8_t* at = slack.data();
    get_varint(at, bad);
    EXPECT_NE(bad, 0u);
    EXPECT_LE(at, slack.data() + kMaxVarint);
  }
}

TEST(ByteReader, NeverReadsPastTheEndAndStaysFailed) {
  const std::vector<std::uint8_t> bytes{0x80};
  ByteReader half(bytes);
  EXPECT_EQ(half.varint(), 0u);
  EXPECT_FALSE(half.ok());
  EXPECT_EQ(half.byte(), 0);
  EXPECT_FALSE(half.ok());

  const std::vector<std::uint8_t> text{3, 'a', 'b'};
  ByteReader reader(text);
  EXPECT_EQ(reader.text(), "");
  EXPECT_FALSE(reader.ok());

  ByteReader skipping(text);
  skipping.skip(kMax);
  EXPECT_FALSE(skipping.ok());
  EXPECT_EQ(ByteReader({}).byte(), 0);
}

TEST(ByteReader, ReadsBytesTextAndBoundedNumbersInOrder) {
  std::vector<std::uint8_t> bytes{7};
  append_text(bytes, "word");
  append_text(bytes, "");
  append_varint(bytes, 500);
  append_varint(bytes, 501);
  ByteReader reader(bytes);
  EXPECT_EQ(reader.byte(), 7);
  EXPECT_EQ(reader.text(), "word");
  EXPECT_EQ(reader.text(), "");
  EXPECT_EQ(reader.varint_up_to(500), 500u);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.varint_up_to(500), 0u);
  EXPECT_FALSE(reader.ok());
}

}  // namespace
}  // namespace peakline::coding
