// Columns of numbers as text: zigzag varints in base64. Reports hold hundreds of thousands of
// numbers, most of them small; as JSON numbers they would take twice the room.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace peakline {

class PackedColumn {
 public:
  void add(std::int64_t value) {
    auto rest = (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
    while (rest >= 0x80) {
      bytes_.push_back(static_cast<std::uint8_t>(rest | 0x80));
      rest >>= 7;
    }
    bytes_.push_back(static_cast<std::uint8_t>(rest));
  }
  // The difference from the value before: for columns that rise slowly.
  void add_difference(std::int64_t value) {
    add(value - last_);
    last_ = value;
  }

  [[nodiscard]] std::string base64() const {
    static constexpr char kDigits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    out.reserve((bytes_.size() + 2) / 3 * 4);
    for (std::size_t i = 0; i < bytes_.size(); i += 3) {
      const auto byte = [&](std::size_t k) -> std::uint32_t {
        return i + k < bytes_.size() ? bytes_[i + k] : 0;
      };
      const std::uint32_t group = byte(0) << 16 | byte(1) << 8 | byte(2);
      out += kDigits[group >> 18 & 63];
      out += kDigits[group >> 12 & 63];
      out += i + 1 < bytes_.size() ? kDigits[group >> 6 & 63] : '=';
      out += i + 2 < bytes_.size() ? kDigits[group & 63] : '=';
    }
    return out;
  }

 private:
  std::vector<std::uint8_t> bytes_;
  std::int64_t last_ = 0;
};

}  // namespace peakline
