#include "new_files.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace peakline::cli {
namespace {

std::string unfinished(const std::string& path) { return path + ".unfinished"; }

}  // namespace

NewFiles::~NewFiles() {
  for (const std::string& path : paths_) std::remove(unfinished(path).c_str());
}

std::string NewFiles::add(const std::string& path) {
  paths_.push_back(path);
  std::remove(unfinished(path).c_str());
  return unfinished(path);
}

Result<std::unique_ptr<Sink>> NewFiles::open(const std::string& path) {
  if (path != "-") return open_file_sink(add(path));
  const int file = ::dup(STDOUT_FILENO);
  if (file < 0) return io_error(std::string("cannot write to stdout: ") + std::strerror(errno));
  return make_file_sink(file, "stdout");
}

Status NewFiles::keep() {
  for (const std::string& path : paths_) {
    if (std::rename(unfinished(path).c_str(), path.c_str()) != 0) {
      return io_error("cannot write " + path + ": " + std::strerror(errno));
    }
  }
  paths_.clear();
  return {};
}

}  // namespace peakline::cli
