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
  Int value;
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(&value, in, sizeof(Int));
  } else {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < sizeof(Int); ++i) sum |= std::uint64_t{in[i]} << (8 * i);
    value = static_cast<Int>(sum);
  }
  return value;
}

// A varint of nine or ten bytes whose first eight, all with the high bit set, are already in
// `value`.
inline std::uint64_t get_long_varint(const std::uint8_t*& in, std::uint64_t value,
                                     std::uint64_t& bad) noexcept {
  const std::uint64_t ninth = in[8];
  value |= (ninth & 0x7f) << 56;
  in += 9;
  if (ninth < 0x80) return value;
  const std::uint64_t tenth = *in++;  // holds bit 63 and nothing else
  bad |= tenth & ~std::uint64_t{1};
  return value | tenth << 63;
}

// Reads one varint without looking for the end of the bytes: the caller has made sure that
// kMaxVarint of them are readable, and checks afterwards where `in` stands. `bad` becomes non-zero
// when they are no varint. Takes the same time for every length up to eight, for lengths that
// cannot be predicted.
[[gnu::always_inline]] inline std::uint64_t get_varint(const std::uint8_t*& in,
                                                       std::uint64_t& bad) noexcept {
  std::uint64_t word = get_fixed<std::uint64_t>(in);
  const std::uint64_t ends = ~word & 0x8080808080808080;  // the high bits of bytes that end one
  word &= ends ^ (ends - 1);                              // nothing behind the first end
  // Squeezes out the high bits: pairs, then fours, then all eight.
  word &= 0x7f7f7f7f7f7f7f7f;
  word = (word & 0x007f007f007f007f) | (word & 0x7f007f007f007f00) >> 1;
  word = (word & 0x00003fff00003fff) | (word & 0x3fff00003fff0000) >> 2;
  word = (word & 0x000000000fffffff) | (word & 0x0fffffff00000000) >> 4;
  if (ends == 0) [[unlikely]]
    return get_long_varint(in, word, bad);
  in += (static_cast<unsigned>(std::countr_zero(ends)) + 1) / 8;
  return word;
}

// The same for numbers that are mostly below 128.
[[gnu::always_inline]] inline std::uint64_t get_short_varint(const std::uint8_t*& in,
                                                             std::uint64_t& bad) noexcept {
  return *in < 0x80 ? *in++ : get_varint(in, bad);
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
