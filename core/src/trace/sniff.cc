#include "trace/sniff.h"

#include <algorithm>

namespace peakline::trace {
namespace {

using namespace std::literals;

struct Signature {
  std::string_view start;
  std::string_view what;
};

constexpr Signature kSignatures[] = {
    {"\x1f\x8b"sv, "a gzip file"},
    {"PK\x03\x04"sv, "a zip archive, as torch.save writes them"},
    {"\x28\xb5\x2f\xfd"sv, "a zstd file"},
    {"\x7f"
     "ELF"sv,
     "a program"},
    {"BZh"sv, "a bzip2 file"},
    {"\xfd"
     "7zXZ"sv,
     "an xz file"},
    {"SQLite format 3"sv, "an SQLite database"},
    {"<"sv, "HTML or XML"},
    {"{"sv, "JSON"},
    {"["sv, "JSON"},
};

bool is_text(std::string_view start) {
  return std::all_of(start.begin(), start.end(), [](char c) {
    return (c >= ' ' && c <= '~') || c == '\t' || c == '\n' || c == '\r';
  });
}

}  // namespace

std::string_view sniff(std::span<const std::uint8_t> start) noexcept {
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  for (const Signature& signature : kSignatures) {
    if (text.starts_with(signature.start)) return signature.what;
  }
  if (start.size() >= 2 && start[0] == 0x80 && start[1] >= 2 && start[1] <= 5) {
    return "a Python pickle, such as a memory snapshot of torch";
  }
  if (text.empty() || !is_text(text)) return {};
  return text.find(',') == std::string_view::npos ? "text" : "CSV";
}

}  // namespace peakline::trace
