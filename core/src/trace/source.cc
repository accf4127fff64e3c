#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <peakline/trace.h>

namespace peakline {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

class FileSource final : public Source {
 public:
  FileSource(int file, std::string path) : file_(file), path_(std::move(path)) {}
  ~FileSource() override { ::close(file_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  Result<std::size_t> read(std::span<std::byte> buffer) override {
    while (true) {
      const ssize_t got = ::read(file_, buffer.data(), buffer.size());
      if (got >= 0) return static_cast<std::size_t>(got);
      if (errno != EINTR) {
        return io_error(fmt::format("cannot read '{}': {}", path_, reason(errno)));
      }
    }
  }
  [[nodiscard]] std::string_view name() const noexcept override { return path_; }

 private:
  int file_;
  std::string path_;
};

class MemorySource final : public Source {
 public:
  explicit MemorySource(std::span<const std::byte> bytes) : rest_(bytes) {}

  Result<std::size_t> read(std::span<std::byte> buffer) override {
    const std::size_t size = std::min(buffer.size(), rest_.size());
    std::copy_n(rest_.begin(), size, buffer.begin());
    rest_ = rest_.subspan(size);
    return size;
  }
  [[nodiscard]] std::string_view name() const noexcept override { return "memory"; }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace

Result<std::unique_ptr<Source>> open_file_source(const std::string& path) {
  int file = -1;
  do {
    file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  } while (file < 0 && errno == EINTR);
  if (file < 0) return io_error(fmt::format("cannot open '{}': {}", path, reason(errno)));
  auto source = make_file_source(file, path);
  struct stat facts {};
  if (::fstat(file, &facts) == 0 && S_ISDIR(facts.st_mode)) {
    return invalid_input(fmt::format("'{}' is a folder, not a peakline recording", path));
  }
  return source;
}

std::unique_ptr<Source> make_file_source(int file, std::string name) {
  return std::make_unique<FileSource>(file, std::move(name));
}

std::unique_ptr<Source> make_memory_source(std::span<const std::byte> bytes) {
  return std::make_unique<MemorySource>(bytes);
}

}  // namespace peakline
