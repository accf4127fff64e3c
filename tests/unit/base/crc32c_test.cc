#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string_view>
#include <vector>

namespace peakline {
namespace {

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// The check value of the CRC catalogue, and the vectors of RFC 3720, B.4.
TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(std::vector<std::uint8_t>(32, 0)), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::vector<std::uint8_t>(32, 0xff)), 0x62A8AB43u);
  std::vector<std::uint8_t> rising(32);
  std::iota(rising.begin(), rising.end(), std::uint8_t{0});
  EXPECT_EQ(crc32c(rising), 0x46DD794Eu);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Crc32c, IsTheSameWithAndWithoutTheInstructionAndInParts) {
  std::vector<std::uint8_t> bytes(1000);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::uint8_t>(i * i + 7 * i);
  for (std::size_t size = 0; size < 70; ++size) {
    const std::span part = std::span<const std::uint8_t>(bytes).subspan(size, 3 * size);
    EXPECT_EQ(crc32c(part), crc32c_portable(part));
    EXPECT_EQ(crc32c(part.subspan(size), crc32c(part.first(size))), crc32c(part));
    EXPECT_EQ(crc32c_portable(part.subspan(size), crc32c(part.first(size))), crc32c(part));
  }
}

}  // namespace
}  // namespace peakline
