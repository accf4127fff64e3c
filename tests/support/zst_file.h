// Test data as text.
#pragma once

#include <zstd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace peakline::testing {

inline std::string data_path(const std::string& name) { return PEAKLINE_TEST_DATA "/" + name; }

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("no test data at " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A whole file of tests/data, decompressed.
inline std::string read_zst(const std::string& name) {
  const std::string packed = read_file(data_path(name));
  const auto size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  // Files that were compressed from a pipe do not say how long they are.
  std::string text(size < (1ull << 30) ? size : packed.size() * 64, '\0');
  const std::size_t got = ZSTD_decompress(text.data(), text.size(), packed.data(), packed.size());
  if (ZSTD_isError(got) != 0) throw std::runtime_error(name + ": " + ZSTD_getErrorName(got));
  text.resize(got);
  return text;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

inline std::vector<std::string> split(const std::string& line, char at) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == at) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

}  // namespace peakline::testing
