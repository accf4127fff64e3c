#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <system_error>

#include <peakline/new_file.h>

namespace peakline {

Result<int> open_new_file(const std::string& path, bool readable) {
  int flags = (readable ? O_RDWR : O_WRONLY) | O_CREAT | O_TRUNC | O_CLOEXEC;
  if (!path.starts_with("/dev/")) flags |= O_NOFOLLOW;
  int file = -1;
  do {
    file = ::open(path.c_str(), flags, 0666);
  } while (file < 0 && errno == EINTR);
  if (file >= 0) return file;
  if (errno == ELOOP) {
    return io_error(fmt::format(
        "cannot create '{}': it is a symbolic link, and nothing is written through one; name the "
        "file that it leads to, or remove it",
        path));
  }
  return io_error(
      fmt::format("cannot create '{}': {}", path, std::generic_category().message(errno)));
}

}  // namespace peakline
