#include "progress.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <peakline/text.h>

namespace peakline::cli {

using std::chrono::steady_clock;

namespace {

constexpr std::chrono::milliseconds kBetween{100};
constexpr std::size_t kBar = 40;  // columns

bool is_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && term != nullptr && std::strcmp(term, "dumb") != 0;
}

}  // namespace

class Progress::CountedSource final : public Source {
 public:
  CountedSource(std::unique_ptr<Source> source, Progress& progress)
      : source_(std::move(source)), progress_(progress) {}
  Result<std::size_t> read(std::span<std::byte> buffer) override {
    Result<std::size_t> got = source_->read(buffer);
    if (got.ok()) progress_.add(*got);
    return got;
  }
  [[nodiscard]] std::string_view name() const noexcept override { return source_->name(); }
  [[nodiscard]] bool grows() const noexcept override { return source_->grows(); }

 private:
  std::unique_ptr<Source> source_;
  Progress& progress_;
};

Progress::Progress(std::string what, std::uint64_t total)
    : what_(std::move(what)),
      total_(total),
      is_shown_(total > 0 && is_terminal()),
      next_(steady_clock::now() + 3 * kBetween) {}  // what is quick needs no bar

Progress::~Progress() {
  if (is_drawn_) std::fputs("\r\x1b[K", stderr);
}

SourceOpener Progress::opener(const std::string& path) {
  return [this, path]() -> Result<std::unique_ptr<Source>> {
    Result<std::unique_ptr<Source>> source = open_file_source(path);
    if (!source.ok()) return source.status();
    return std::unique_ptr<Source>(std::make_unique<CountedSource>(std::move(*source), *this));
  };
}

void Progress::add(std::uint64_t bytes) {
  done_ += bytes;
  if (!is_shown_ || steady_clock::now() < next_) return;
  next_ = steady_clock::now() + kBetween;
  draw();
}

void Progress::draw() {
  const double share = std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_));
  std::string filled = bar(share, kBar);
  filled.append(kBar - std::min(kBar, width(filled)), ' ');
  const std::string line =
      fmt::format("\r{} [{}] {:3.0f}%", shorten(printable(what_), 30), filled, share * 100);
  std::fputs(line.c_str(), stderr);
  is_drawn_ = true;
}

std::uint64_t size_of_file(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return 0;
  return static_cast<std::uint64_t>(facts.st_size);
}

}  // namespace peakline::cli
