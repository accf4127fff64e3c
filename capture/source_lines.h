// Lines of the program's own files, as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace peakline::capture {

// Reads a file once. What cannot be read has empty lines. Not thread-safe.
class SourceLines {
 public:
  static constexpr std::size_t kLongest = 160;  // bytes of a line; the rest is cut

  // Line `number` (1 is the first) of `file`, without the blanks around it.
  [[nodiscard]] std::string line(const std::string& file, std::uint32_t number);

 private:
  static constexpr std::size_t kLargestFile = std::size_t{4} << 20;
  static constexpr std::size_t kMostBytes = std::size_t{32} << 20;  // then all are read again

  using Lines = std::vector<std::string>;
  const Lines& lines_of(const std::string& file);

  std::unordered_map<std::string, Lines> files_;
  std::size_t bytes_ = 0;
};

}  // namespace peakline::capture
