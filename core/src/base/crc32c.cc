#include "base/crc32c.h"

#include <array>
#include <cstddef>

#include "base/coding.h"

namespace peakline {
namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// tables[k][b] is the effect of byte b followed by k zero bytes, which lets eight bytes be summed
// at once.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0u);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

// From and to the inverted form in which checksums are carried on.
std::uint32_t sum_portably(std::span<const std::uint8_t> bytes, std::uint32_t crc) noexcept {
  while (bytes.size() >= 8) {
    const auto word = coding::get_fixed<std::uint64_t>(bytes.data()) ^ crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= kTables[7 - i][(word >> (8 * i)) & 0xff];
    bytes = bytes.subspan(8);
  }
  for (const std::uint8_t byte : bytes) crc = (crc >> 8) ^ kTables[0][(crc ^ byte) & 0xff];
  return crc;
}

#if defined(__x86_64__)
[[gnu::target("sse4.2")]] std::uint32_t sum_by_instruction(std::span<const std::uint8_t> bytes,
                                                           std::uint32_t crc) noexcept {
  std::uint64_t wide = crc;
  while (bytes.size() >= 8) {
    wide = __builtin_ia32_crc32di(wide, coding::get_fixed<std::uint64_t>(bytes.data()));
    bytes = bytes.subspan(8);
  }
  crc = static_cast<std::uint32_t>(wide);
  for (const std::uint8_t byte : bytes) crc = __builtin_ia32_crc32qi(crc, byte);
  return crc;
}
#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::uint8_t> bytes, std::uint32_t crc) noexcept {
#if defined(__x86_64__)
  static const bool kHasInstruction = __builtin_cpu_supports("sse4.2");
  if (kHasInstruction) return ~sum_by_instruction(bytes, ~crc);
#endif
  return crc32c_portable(bytes, crc);
}

std::uint32_t crc32c_portable(std::span<const std::uint8_t> bytes, std::uint32_t crc) noexcept {
  return ~sum_portably(bytes, ~crc);
}

}  // namespace peakline
