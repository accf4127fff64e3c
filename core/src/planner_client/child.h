// A program that is asked line by line: its input and output are one socket.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace peakline::planner_client {

// Not thread-safe.
class Child {
 public:
  Child() = default;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { stop(); }

  bool start(const std::string& program, const std::string& argument);
  // Kills it; it may be started again.
  void stop();

  // False in a fork of the process that started it: answers to one would reach the other.
  [[nodiscard]] bool is_ours() const;

  [[nodiscard]] bool write(std::string_view text) const;
  // Nothing when it has ended, or takes too long.
  std::optional<std::string> read_line();

 private:
  int socket_ = -1;
  pid_t process_ = -1;
  pid_t owner_ = -1;
  std::string buffer_;
};

}  // namespace peakline::planner_client
