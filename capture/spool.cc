#include "capture/spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace peakline::capture {
namespace {

std::string why() { return std::strerror(errno); }

Status cannot(const char* verb, const std::string& name) {
  return io_error(std::string("cannot ") + verb + " '" + name + "': " + why());
}

Status write_all(int fd, const std::byte* data, std::size_t size, const std::string& name) {
  while (size > 0) {
    const ssize_t done = ::write(fd, data, size);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return cannot("write", name);
    data += done;
    size -= static_cast<std::size_t>(done);
  }
  return {};
}

class FdSink : public Sink {
 public:
  FdSink(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}
  ~FdSink() override { ::close(fd_); }
  Status write(std::span<const std::byte> bytes) override {
    return write_all(fd_, bytes.data(), bytes.size(), name_);
  }
  // The kernel has every byte already; a killed process loses none of them.
  Status flush() override { return {}; }

 private:
  int fd_;
  std::string name_;
};

// Reads with its own position, so that the writer's is left alone.
class FdSource : public Source {
 public:
  FdSource(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}
  ~FdSource() override { ::close(fd_); }
  Result<std::size_t> read(std::span<std::byte> buffer) override {
    for (;;) {
      const ssize_t got = ::pread(fd_, buffer.data(), buffer.size(), position_);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return cannot("read", name_);
      position_ += got;
      return static_cast<std::size_t>(got);
    }
  }
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }

 private:
  int fd_;
  std::string name_;
  off_t position_ = 0;
};

int open_unnamed() {
  const char* set = std::getenv("TMPDIR");
  std::string path = std::string(set != nullptr && *set != 0 ? set : "/tmp") + "/peakline-XXXXXX";
  const int fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (fd >= 0) ::unlink(path.c_str());
  return fd;
}

}  // namespace

Result<std::shared_ptr<Spool>> Spool::open(const std::string& path) {
  const int fd = path.empty() ? open_unnamed()
                              : ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const std::string name = path.empty() ? "the recording" : path;
  if (fd < 0) return cannot("create", path.empty() ? "a temporary file" : path);
  return std::shared_ptr<Spool>(new Spool(fd, name));
}

Result<std::shared_ptr<Spool>> Spool::open_existing(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return cannot("open", path);
  return std::shared_ptr<Spool>(new Spool(fd, path));
}

Spool::~Spool() { ::close(fd_); }

Result<std::unique_ptr<Sink>> Spool::sink() const {
  const int copy = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return cannot("write", name_);
  return std::unique_ptr<Sink>(std::make_unique<FdSink>(copy, name_));
}

Result<std::unique_ptr<Source>> Spool::source() const {
  const int copy = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return cannot("read", name_);
  return std::unique_ptr<Source>(std::make_unique<FdSource>(copy, name_));
}

Status Spool::copy_to(const std::string& path) const {
  Result<std::unique_ptr<Source>> from = source();
  if (!from.ok()) return from.status();
  const int to = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (to < 0) return cannot("create", path);
  std::array<std::byte, std::size_t{1} << 16> buffer;
  Status status;
  for (;;) {
    const Result<std::size_t> got = (*from)->read(buffer);
    if (!got.ok()) status = got.status();
    if (!got.ok() || *got == 0) break;
    status = write_all(to, buffer.data(), *got, path);
    if (!status.ok()) break;
  }
  if (::close(to) != 0 && status.ok()) status = cannot("write", path);
  return status;
}

}  // namespace peakline::capture
