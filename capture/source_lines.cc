#include "capture/source_lines.h"

#include <sys/stat.h>

#include <fstream>
#include <string_view>

namespace peakline::capture {
namespace {

bool is_small_file(const std::string& path, std::size_t most) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode) &&
         static_cast<std::size_t>(found.st_size) <= most;
}

std::string_view trimmed(std::string_view text, std::size_t longest) {
  constexpr std::string_view kBlanks = " \t\r\f";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  text = text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
  if (text.size() <= longest) return text;
  while (longest > 0 && (static_cast<unsigned char>(text[longest]) & 0xc0) == 0x80) --longest;
  return text.substr(0, longest);
}

}  // namespace

const SourceLines::Lines& SourceLines::lines_of(const std::string& file) {
  if (const auto found = files_.find(file); found != files_.end()) return found->second;
  if (bytes_ > kMostBytes) {
    files_.clear();
    bytes_ = 0;
  }
  Lines& lines = files_[file];
  if (!is_small_file(file, kLargestFile)) return lines;
  std::ifstream in(file);
  for (std::string text; std::getline(in, text);) {
    lines.emplace_back(trimmed(text, kLongest));
    bytes_ += lines.back().size() + sizeof(std::string);
  }
  return lines;
}

std::string SourceLines::line(const std::string& file, std::uint32_t number) {
  if (number == 0) return {};  // a library's function
  const Lines& lines = lines_of(file);
  return number > lines.size() ? std::string() : lines[number - 1];
}

}  // namespace peakline::capture
