// Where a recording lies while and after it is made.
#pragma once

#include <memory>
#include <string>

#include <peakline/status.h>
#include <peakline/trace.h>

namespace peakline::capture {

// A file that the recording is written to and can be read back from: at a path that stays, or
// without a name, gone when this object is. Reading is allowed while it is still being written.
// Not thread-safe, except that one thread may write through the sink while another reads.
class Spool {
 public:
  // An empty `path` makes one without a name, in $TMPDIR or /tmp.
  static Result<std::shared_ptr<Spool>> open(const std::string& path);
  // An existing recording.
  static Result<std::shared_ptr<Spool>> open_existing(const std::string& path);
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  // Writes the file from its beginning; holds on to the file, not to this object, as does the source.
  Result<std::unique_ptr<Sink>> sink() const;
  // Reads from the beginning.
  Result<std::unique_ptr<Source>> source() const;
  // Puts a copy of what has been written at `path`.
  Status copy_to(const std::string& path) const;

 private:
  Spool(int file, std::string name) : file_(file), name_(std::move(name)) {}

  int file_;
  std::string name_;
};

}  // namespace peakline::capture
