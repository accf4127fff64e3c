#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <peakline/new_file.h>
#include <peakline/trace.h>

namespace peakline {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

// Every write goes straight to the kernel, so that what was written survives a kill.
class FileSink final : public Sink {
 public:
  FileSink(int file, std::string path) : file_(file), path_(std::move(path)), owner_(::getpid()) {
    struct stat facts {};
    can_cut_ = ::fstat(file_, &facts) == 0 && S_ISREG(facts.st_mode);
  }
  ~FileSink() override { ::close(file_); }
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;

  Status write(std::span<const std::byte> bytes) override {
    // A forked child shares the file's position with its parent: both writing would mix chunks.
    if (::getpid() != owner_) {
      return io_error(fmt::format("'{}' belongs to the process that opened it", path_));
    }
    if (!broken_.ok()) return broken_;
    const std::size_t all = bytes.size();
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return failed(errno, all - bytes.size());
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    size_ += all;
    return {};
  }

  Status flush() override { return broken_; }

 private:
  // Takes back the part of a chunk that did fit, so that something shorter can follow.
  Status failed(int error, std::size_t partly) {
    Status status = io_error(fmt::format("cannot write '{}': {}", path_, reason(error)));
    const auto size = static_cast<off_t>(size_);
    const bool undone = partly == 0 || (can_cut_ && ::ftruncate(file_, size) == 0 &&
                                        ::lseek(file_, size, SEEK_SET) == size);
    if (!undone) broken_ = status;
    return status;
  }

  int file_;
  std::string path_;
  pid_t owner_;
  bool can_cut_ = false;
  std::uint64_t size_ = 0;
  Status broken_;
};

class MemorySink final : public Sink {
 public:
  explicit MemorySink(std::vector<std::byte>& bytes) : bytes_(bytes) {}
  Status write(std::span<const std::byte> bytes) override {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return {};
  }
  Status flush() override { return {}; }

 private:
  std::vector<std::byte>& bytes_;
};

}  // namespace

Result<std::unique_ptr<Sink>> open_file_sink(const std::string& path) {
  const Result<int> file = open_new_file(path);
  if (!file.ok()) return file.status();
  return make_file_sink(*file, path);
}

std::unique_ptr<Sink> make_file_sink(int file, std::string name) {
  return std::make_unique<FileSink>(file, std::move(name));
}

std::unique_ptr<Sink> make_memory_sink(std::vector<std::byte>& bytes) {
  return std::make_unique<MemorySink>(bytes);
}

}  // namespace peakline
