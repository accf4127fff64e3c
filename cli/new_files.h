// Files that appear when they are complete.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <peakline/status.h>
#include <peakline/trace.h>

namespace peakline::cli {

// Writes NAME.unfinished and renames it in the end, so that what fails leaves nothing behind that
// looks like an answer. Not thread-safe.
class NewFiles {
 public:
  NewFiles() = default;
  ~NewFiles();  // removes what was not kept
  NewFiles(const NewFiles&) = delete;
  NewFiles& operator=(const NewFiles&) = delete;

  // "-" is stdout.
  Result<std::unique_ptr<Sink>> open(const std::string& path);
  // The name to write to, for a writer that opens files itself; nothing is there.
  std::string add(const std::string& path);
  Status keep();

 private:
  std::vector<std::string> paths_;
};

}  // namespace peakline::cli
