#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string>

#include <peakline/units.h>

namespace peakline {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

constexpr std::array<Unit, 17> kUnits{{
    {"", 1},
    {"b", 1},
    {"kb", 1e3},
    {"mb", 1e6},
    {"gb", 1e9},
    {"tb", 1e12},
    {"pb", 1e15},
    {"kib", 0x1p10},
    {"mib", 0x1p20},
    {"gib", 0x1p30},
    {"tib", 0x1p40},
    {"pib", 0x1p50},
    {"k", 0x1p10},
    {"m", 0x1p20},
    {"g", 0x1p30},
    {"t", 0x1p40},
    {"p", 0x1p50},
}};

std::string_view trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) {
    text.remove_prefix(1);
  }
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) {
    text.remove_suffix(1);
  }
  return text;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

Result<Bytes> parse_size(std::string_view text) {
  const std::string_view trimmed = trim(text);
  const auto bad = [&] {
    return invalid_input(
        fmt::format("'{}' is not a size; write for example 24GiB, 80GB, 512MiB or bytes", text));
  };
  double number = 0;
  const char* end = trimmed.data() + trimmed.size();
  const auto [rest, error] = std::from_chars(trimmed.data(), end, number);
  if (error != std::errc{} || !std::isfinite(number) || number < 0) return bad();

  const std::string unit = lower(trim({rest, static_cast<std::size_t>(end - rest)}));
  for (const Unit& candidate : kUnits) {
    if (candidate.name != unit) continue;
    const double bytes = number * candidate.bytes;
    if (bytes > 0x1p62) return bad();
    return Bytes(std::llround(bytes));
  }
  return bad();
}

std::string format_size(Bytes bytes) {
  static constexpr std::array<std::string_view, 6> kNames{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = std::abs(static_cast<double>(bytes.raw()));
  std::size_t unit = 0;
  // 1023.95 already rounds to four digits of the next unit.
  while (value >= 1023.95 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  const char* sign = bytes.raw() < 0 ? "-" : "";
  if (unit == 0) return fmt::format("{}{} B", sign, std::llround(value));
  const int decimals = value < 9.9995 ? 3 : value < 99.995 ? 2 : 1;
  return fmt::format("{}{:.{}f} {}", sign, value, decimals, kNames[unit]);
}

}  // namespace peakline
