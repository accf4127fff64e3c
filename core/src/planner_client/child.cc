#include "planner_client/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace peakline::planner_client {
namespace {

// Opening cuDNN takes a tenth of a second on an idle machine.
constexpr int kPatienceMs = 60'000;

// Profilers and timers send signals at any time.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace

bool Child::start(const std::string& program, const std::string& argument) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string name = program;
  std::string given = argument;
  char* arguments[] = {name.data(), given.data(), nullptr};
  const int failed = posix_spawn(&process_, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  socket_ = ends[0];
  owner_ = getpid();
  if (failed != 0) process_ = -1;
  return failed == 0;
}

bool Child::is_ours() const { return owner_ == getpid(); }

bool Child::write(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t sent =
        uninterrupted([&] { return send(socket_, text.data(), text.size(), MSG_NOSIGNAL); });
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::optional<std::string> Child::read_line() {
  while (true) {
    const std::size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    pollfd waiting{socket_, POLLIN, 0};
    if (uninterrupted([&] { return poll(&waiting, 1, kPatienceMs); }) <= 0) return std::nullopt;
    char chunk[4096];
    const ssize_t got = uninterrupted([&] { return recv(socket_, chunk, sizeof chunk, 0); });
    if (got <= 0) return std::nullopt;
    buffer_.append(chunk, static_cast<std::size_t>(got));
  }
}

void Child::stop() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
  buffer_.clear();
  if (process_ > 0 && is_ours()) {
    kill(process_, SIGKILL);
    uninterrupted([&] { return waitpid(process_, nullptr, 0); });
  }
  process_ = -1;
}

}  // namespace peakline::planner_client
