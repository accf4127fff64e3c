// Quantities as types, so that bytes cannot be added to nanoseconds.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include <peakline/status.h>

namespace peakline {

// A number of bytes. Signed: differences are bytes too.
class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(std::int64_t count) : count_(count) {}

  [[nodiscard]] constexpr std::int64_t raw() const noexcept { return count_; }

  constexpr Bytes& operator+=(Bytes other) noexcept { return count_ += other.count_, *this; }
  constexpr Bytes& operator-=(Bytes other) noexcept { return count_ -= other.count_, *this; }
  friend constexpr Bytes operator+(Bytes a, Bytes b) noexcept { return a += b; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) noexcept { return a -= b; }
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 mistakes the 0 that <=> compares with
  friend constexpr auto operator<=>(Bytes, Bytes) = default;

 private:
  std::int64_t count_ = 0;
};

// Nanoseconds since the recording began.
class TimeNs {
 public:
  constexpr TimeNs() = default;
  constexpr explicit TimeNs(std::int64_t ns) : ns_(ns) {}

  [[nodiscard]] constexpr std::int64_t raw() const noexcept { return ns_; }
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 mistakes the 0 that <=> compares with
  friend constexpr auto operator<=>(TimeNs, TimeNs) = default;

 private:
  std::int64_t ns_ = 0;
};

inline namespace literals {
constexpr Bytes operator""_B(unsigned long long n) { return Bytes(static_cast<std::int64_t>(n)); }
constexpr Bytes operator""_KiB(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n) << 10);
}
constexpr Bytes operator""_MiB(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n) << 20);
}
constexpr Bytes operator""_GiB(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n) << 30);
}
}  // namespace literals

// Reads a size as people type it: "24GiB", "80 GB", "1.5MiB", "512" (bytes). Case does not matter.
Result<Bytes> parse_size(std::string_view text);

// Writes a size as people read it, in binary units with four significant digits: "7.808 GiB".
std::string format_size(Bytes bytes);

}  // namespace peakline
