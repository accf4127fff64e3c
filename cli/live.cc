#include "live.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <optional>

#include <peakline/import.h>

#include "command.h"
#include "live_text.h"
#include "output.h"

namespace peakline::cli {
namespace {

using Clock = std::chrono::steady_clock;

volatile std::sig_atomic_t interrupted = 0;

// Ctrl-C ends the view, not the program in the middle of a line.
class InterruptGuard {
 public:
  InterruptGuard() {
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    sigaction(SIGINT, &action, &old_);
  }
  ~InterruptGuard() { sigaction(SIGINT, &old_, nullptr); }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction old_ {};
};

// A file that is still growing: where it ends for now, `wait` decides whether to look again.
class FollowingSource final : public Source {
 public:
  FollowingSource(std::unique_ptr<Source> file, std::function<bool()> wait)
      : file_(std::move(file)), wait_(std::move(wait)) {}

  Result<std::size_t> read(std::span<std::byte> buffer) override {
    for (;;) {
      Result<std::size_t> got = file_->read(buffer);
      if (!got.ok() || *got > 0 || !wait_()) return got;
    }
  }
  [[nodiscard]] std::string_view name() const noexcept override { return file_->name(); }
  [[nodiscard]] bool grows() const noexcept override { return true; }

 private:
  std::unique_ptr<Source> file_;
  std::function<bool()> wait_;
};

bool pause_briefly() {
  if (interrupted == 0) usleep(100'000);
  return interrupted == 0;
}

// Draws what is known, as often as eyes need it.
class View {
 public:
  explicit View(std::string name)
      : name_(std::move(name)), terminal_(isatty(STDOUT_FILENO) == 1), paint_(wants_colour()) {
    if (terminal_) std::fputs("\x1b[?1049h", stdout);  // a screen of its own
  }
  ~View() { leave(); }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  void watch(const Replay& replay, const LivePass& live, const Dictionary& dictionary) {
    replay_ = &replay;
    live_ = &live;
    dictionary_ = &dictionary;
  }
  void maybe_draw() {
    const auto period = std::chrono::milliseconds(terminal_ ? 250 : 1000);
    if (replay_ == nullptr || replay_->event_count() == drawn_events_) return;
    if (drawn_events_ > 0 && Clock::now() - drawn_ < period) return;
    draw();
  }
  // The last picture, on the ordinary screen.
  // The last picture; what watch() was given may go away then.
  void finish() {
    leave();
    if (replay_ != nullptr && (terminal_ || replay_->event_count() != drawn_events_)) draw();
    replay_ = nullptr;
    live_ = nullptr;
    dictionary_ = nullptr;
  }

 private:
  void leave() {
    if (!terminal_ || left_) return;
    std::fputs("\x1b[?1049l", stdout);
    left_ = true;
  }
  static std::size_t rows() {
    winsize size{};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
  }
  void draw() {
    std::string out;
    if (terminal_) {
      if (!left_) out += "\x1b[H\x1b[J";
      out += live_screen(name_, *replay_, *live_, *dictionary_, rows(), paint_);
    } else {
      out = live_line(*replay_, *live_, *dictionary_) + "\n";
    }
    std::fputs(out.c_str(), stdout);
    std::fflush(stdout);
    drawn_ = Clock::now();
    drawn_events_ = replay_->event_count();
  }

  std::string name_;
  bool terminal_;
  Paint paint_;
  bool left_ = false;
  const Replay* replay_ = nullptr;
  const LivePass* live_ = nullptr;
  const Dictionary* dictionary_ = nullptr;
  Clock::time_point drawn_;
  std::uint64_t drawn_events_ = 0;
};

// Waits until there is a file, and until it shows what it is. False when interrupted.
Result<bool> wait_for_recording(const std::string& path) {
  constexpr std::size_t kEnough = 16;  // a recording's header
  bool said = false;
  do {
    if (access(path.c_str(), F_OK) == 0) {
      Result<std::unique_ptr<Source>> source = open_file_source(path);
      if (!source.ok()) return source.status();
      std::array<std::byte, 256> start{};
      const Result<std::size_t> got = (*source)->read(start);
      if (!got.ok()) return got.status();
      const std::span<const std::byte> seen = std::span(start).first(*got);
      if (*got >= kEnough) return true;
      if (*got > 0 && kind_of_file(seen) != FileKind::kRecording) return true;
    } else if (errno != ENOENT) {
      return io_error("cannot open '" + path + "'");
    }
    if (!said) complain("waiting for " + path + " to be written; Ctrl-C ends");
    said = true;
  } while (pause_briefly());
  return false;
}

Status play(const std::string& path, View& view) {
  Result<std::unique_ptr<Source>> file = open_file_source(path);
  if (!file.ok()) return file.status();
  std::array<std::byte, 256> start{};
  // Something else is refused by what it is, instead of being waited for.
  const Result<std::size_t> got = (*file)->read(start);
  if (!got.ok()) return got.status();
  const bool follow = kind_of_file(std::span(start).first(*got)) == FileKind::kRecording;
  file = open_file_source(path);
  if (!file.ok()) return file.status();
  const auto wait = [&view] {
    view.maybe_draw();
    return pause_briefly();
  };
  std::unique_ptr<Source> source = std::move(file).value();
  if (follow) source = std::make_unique<FollowingSource>(std::move(source), wait);
  Result<TraceReader> reader = TraceReader::open(std::move(source));
  if (!reader.ok()) return interrupted != 0 ? Status{} : reader.status();
  Replay replay(reader->dictionary());
  LivePass live;
  replay.add(live);
  view.watch(replay, live, reader->dictionary());
  Status status;
  while (interrupted == 0) {
    const Result<std::span<const Event>> events = reader->next();
    if (!events.ok()) status = events.status();
    if (!events.ok() || events->empty()) break;
    for (const Event& event : *events) replay.on(event);
    view.maybe_draw();
  }
  view.finish();
  return status;
}

}  // namespace

int follow(const std::string& path) {
  const InterruptGuard guard;
  const Result<bool> there = wait_for_recording(path);
  if (!there.ok()) return refuse_input(there.status());
  if (!*there) return kYes;
  Status status;
  {
    View view(path);
    status = play(path, view);
  }
  return status.ok() ? kYes : refuse_input(status);
}

}  // namespace peakline::cli
