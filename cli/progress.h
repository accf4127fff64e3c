// How far a long read has come, for people who watch.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <peakline/import.h>

namespace peakline::cli {

// A bar on stderr while files are read; nothing where stderr is no terminal. Not thread-safe.
class Progress {
 public:
  // `total`: bytes that will be read.
  Progress(std::string what, std::uint64_t total);
  ~Progress();  // takes the bar away
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Opens `path`; what is read of it moves the bar. This outlives the sources.
  [[nodiscard]] SourceOpener opener(const std::string& path);

 private:
  class CountedSource;
  void add(std::uint64_t bytes);
  void draw();

  std::string what_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  bool is_shown_;
  bool is_drawn_ = false;
  std::chrono::steady_clock::time_point next_;
};

// 0 for what has no size, a pipe for one.
std::uint64_t size_of_file(const std::string& path);

}  // namespace peakline::cli
