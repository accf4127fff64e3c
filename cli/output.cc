#include "output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <peakline/new_file.h>
#include <peakline/text.h>

#include "command.h"

namespace peakline::cli {

Status write_output(const std::string& path, std::string_view text) {
  const bool to_stdout = path == "-";
  std::FILE* file = stdout;
  if (!to_stdout) {
    const Result<int> opened = open_new_file(path);
    if (!opened.ok()) return opened.status();
    file = ::fdopen(*opened, "wb");
    if (file == nullptr) return io_error("cannot write " + path + ": " + std::strerror(errno));
  }
  bool good = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  good &= (to_stdout ? std::fflush(file) : std::fclose(file)) == 0;
  if (!good) return io_error("cannot write all of " + path + ": " + std::strerror(errno));
  return {};
}

void complain(std::string_view sentence) {
  const std::string line = "peakline: " + printable(sentence) + "\n";
  std::fputs(line.c_str(), stderr);
}

int refuse_input(const Status& status) {
  complain(status.message());
  return kBadInput;
}

int fail_to_write(const Status& status) {
  complain(status.message());
  return status.code() == StatusCode::kIo ? kFailed : kBadInput;
}

bool wants_colour() {
  const char* term = std::getenv("TERM");
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0') &&
         term != nullptr && std::strcmp(term, "dumb") != 0;
}

}  // namespace peakline::cli
