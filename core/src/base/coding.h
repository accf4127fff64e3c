// How numbers and text become bytes: little-endian, LEB128 varints, zigzag for signed numbers.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace peakline::coding {

// A 64-bit varint is at most this long.
inline constexpr std::size_t kMaxVarint = 10;

// Small numbers of either sign become small unsigned ones: 0, -1, 1, -2, ...
constexpr std::uint64_t zigzag(std::int64_t value) noexcept {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
constexpr std::int64_t unzigzag(std::uint64_t value) noexcept {
  return static_cast<std::int64_t>((value >> 1) ^ (0 - (value & 1)));
}

// --- Writing. The put functions need room at `out` and give the end of what they wrote. ---

inline std::uint8_t* put_varint(std::uint8_t* out, std::uint64_t value) noexcept {
  while (value >= 0x80) {
    *out++ = static_cast<std::uint8_t>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<std::uint8_t>(value);
  return out;
}

template <class Int>
std::uint8_t* put_fixed(std::uint8_t* out, Int value) noexcept {
  for (std::size_t i = 0; i < sizeof(Int); ++i) {
    *out++ = static_cast<std::uint8_t>(static_cast<std::uint64_t>(value) >> (8 * i));
  }
  return out;
}

inline void append_varint(std::vector<std::uint8_t>& out, std::uint64_t value) {
  std::uint8_t buffer[kMaxVarint];
  out.insert(out.end(), buffer, put_varint(buffer, value));
}

inline void append_text(std::vector<std::uint8_t>& out, std::string_view text) {
  append_varint(out, text.size());
  out.insert(out.end(), text.begin(), text.end());
}

// --- Reading. ---

template <class Int>
Int get_fixed(const std::uint8_t* in) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(Int); ++i) value |= std::uint64_t{in[i]} << (8 * i);
  return static_cast<Int>(value);
}

// The rest of a varint whose first byte was `first`, with the high bit set.
inline std::uint64_t get_long_varint(const std::uint8_t*& in, std::uint64_t first,
                                     std::uint64_t& bad) noexcept {
  std::uint64_t value = first & 0x7f;
  for (unsigned shift = 7; shift < 63; shift += 7) {
    const std::uint64_t byte = *in++;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  const std::uint64_t last = *in++;  // holds bit 63 and nothing else
  bad |= last & ~std::uint64_t{1};
  return value | last << 63;
}

// Reads up to kMaxVarint bytes without looking for the end: the caller has made sure that so many
// are readable, and checks afterwards where `in` stands. `bad` becomes non-zero when the bytes are
// no varint.
inline std::uint64_t get_varint(const std::uint8_t*& in, std::uint64_t& bad) noexcept {
  const std::uint64_t first = *in++;
  return first < 0x80 ? first : get_long_varint(in, first, bad);
}

// Reads untrusted bytes front to back. A read past the end, or of something malformed, answers
// with zero and makes ok() false for good, so callers may check once at the end.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::uint8_t> bytes)
      : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  [[nodiscard]] bool ok() const noexcept { return ok_; }
  [[nodiscard]] std::size_t remaining() const noexcept {
    return static_cast<std::size_t>(end_ - at_);
  }
  [[nodiscard]] const std::uint8_t* position() const noexcept { return at_; }

  std::uint8_t byte() noexcept { return take(1) ? at_[-1] : std::uint8_t{0}; }

  std::uint64_t varint() noexcept {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::uint64_t next = byte();
      if (shift == 63 && next > 1) ok_ = false;
      value |= (next & 0x7f) << shift;
      if (next < 0x80) return ok_ ? value : 0;
    }
    ok_ = false;
    return 0;
  }

  // A varint that must not exceed `most`.
  std::uint64_t varint_up_to(std::uint64_t most) noexcept {
    const std::uint64_t value = varint();
    if (value <= most) return value;
    ok_ = false;
    return 0;
  }

  // A length and so many bytes; valid as long as the bytes under the reader are.
  std::string_view text() noexcept {
    const std::uint64_t size = varint();
    if (!ok_ || size > remaining()) {
      ok_ = false;
      return {};
    }
    const char* start = reinterpret_cast<const char*>(at_);
    at_ += size;
    return {start, static_cast<std::size_t>(size)};
  }

  void skip(std::uint64_t size) noexcept { take(size); }

 private:
  bool take(std::uint64_t size) noexcept {
    if (!ok_ || size > remaining()) return ok_ = false;
    at_ += size;
    return true;
  }

  const std::uint8_t* at_;
  const std::uint8_t* end_;
  bool ok_ = true;
};

}  // namespace peakline::coding
