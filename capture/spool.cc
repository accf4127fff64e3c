#include "capture/spool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <peakline/new_file.h>

namespace peakline::capture {
namespace {

Status cannot(const char* verb, const std::string& name) {
  const bool named = name != "a temporary file";
  return io_error(std::string("cannot ") + verb + (named ? " '" + name + "'" : " " + name) + ": " +
                  std::strerror(errno));
}

int open_unnamed() {
  const char* set = std::getenv("TMPDIR");
  std::string path = std::string(set != nullptr && *set != 0 ? set : "/tmp") + "/peakline-XXXXXX";
  const int file = ::mkostemp(path.data(), O_CLOEXEC);
  if (file >= 0) ::unlink(path.c_str());
  return file;
}

// The same file with a position of its own, whatever has become of its name.
int open_again(int file, int flags) {
  return ::open(("/proc/self/fd/" + std::to_string(file)).c_str(), flags | O_CLOEXEC);
}

}  // namespace

Result<std::shared_ptr<Spool>> Spool::open(const std::string& path) {
  if (path.empty()) {
    const int file = open_unnamed();
    if (file < 0) return cannot("create", "a temporary file");
    return std::shared_ptr<Spool>(new Spool(file, "the recording"));
  }
  const Result<int> file = open_new_file(path, /*readable=*/true);
  if (!file.ok()) return file.status();
  return std::shared_ptr<Spool>(new Spool(*file, path));
}

Result<std::shared_ptr<Spool>> Spool::open_existing(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return cannot("open", path);
  std::shared_ptr<Spool> spool(new Spool(file, path));
  struct stat facts {};
  if (::fstat(file, &facts) == 0 && S_ISFIFO(facts.st_mode)) {
    return invalid_input("'" + path +
                         "' is a pipe, and a recording is read more than once; save it as a file");
  }
  return spool;
}

Spool::~Spool() { ::close(file_); }

Result<std::unique_ptr<Sink>> Spool::sink() const {
  const int file = open_again(file_, O_WRONLY);
  if (file < 0) return cannot("write", name_);
  return make_file_sink(file, name_);
}

Result<std::unique_ptr<Source>> Spool::source() const {
  const int file = open_again(file_, O_RDONLY);
  if (file < 0) return cannot("read", name_);
  return make_file_source(file, name_);
}

Status Spool::copy_to(const std::string& path) const {
  Result<std::unique_ptr<Source>> from = source();
  if (!from.ok()) return from.status();
  Result<std::unique_ptr<Sink>> to = open_file_sink(path);
  if (!to.ok()) return to.status();
  std::array<std::byte, std::size_t{1} << 16> buffer;
  for (;;) {
    const Result<std::size_t> got = (*from)->read(buffer);
    if (!got.ok() || *got == 0) return got.status();
    Status written = (*to)->write(std::span(buffer).first(*got));
    if (!written.ok()) return written;
  }
}

}  // namespace peakline::capture
