#include "base/utf8.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace peakline {
namespace {

bool continues(char c) { return (static_cast<std::uint8_t>(c) & 0xC0) == 0x80; }

// How long the character at the start of `text` is; 0 when it is none.
std::size_t character(std::string_view text) {
  const auto first = static_cast<std::uint8_t>(text[0]);
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
  if (!std::all_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(size), continues)) {
    return 0;
  }
  const auto second = static_cast<std::uint8_t>(text[1]);
  const bool too_long = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second >= 0xA0;
  const bool beyond = first == 0xF4 && second >= 0x90;
  return too_long || surrogate || beyond ? 0 : size;
}

}  // namespace

std::string_view valid_utf8(std::string_view text, std::string& scratch) {
  const auto is_ascii = [](char c) { return static_cast<std::uint8_t>(c) < 0x80; };
  if (std::ranges::all_of(text, is_ascii)) return text;
  scratch.clear();
  while (!text.empty()) {
    const std::size_t size = character(text);
    if (size == 0) {
      scratch += "\xEF\xBF\xBD";
    } else {
      scratch.append(text.substr(0, size));
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return scratch;
}

}  // namespace peakline
