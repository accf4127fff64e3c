// Protocol Buffers' wire format, written: https://protobuf.dev/programming-guides/encoding
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/coding.h"

namespace peakline {

// One message in the making; fields may come in any order.
class Proto {
 public:
  Proto& number(std::uint32_t field, std::uint64_t value) {
    varint(std::uint64_t{field} << 3);
    varint(value);
    return *this;
  }
  Proto& text(std::uint32_t field, std::string_view value) {
    varint(std::uint64_t{field} << 3 | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Proto& message(std::uint32_t field, const Proto& value) { return text(field, value.bytes_); }
  void clear() { bytes_.clear(); }
  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    std::uint8_t buffer[coding::kMaxVarint];
    const std::uint8_t* end = coding::put_varint(buffer, value);
    bytes_.append(reinterpret_cast<const char*>(buffer), static_cast<std::size_t>(end - buffer));
  }

  std::string bytes_;
};

}  // namespace peakline
