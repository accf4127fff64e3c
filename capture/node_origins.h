// Where autograd nodes were made, known by the numbers they carry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

namespace peakline::capture {

// Every autograd node carries the thread that made it and that thread's running number. So it is
// enough to note, now and then, from which number on nodes come from where. What "where" is, is up
// to whoever notes it; 0 is nowhere. Not thread-safe.
class NodeOrigins {
 public:
  // From node number `sequence` on, what `autograd_thread` makes comes from `origin`.
  void note(std::uint64_t autograd_thread, std::uint64_t sequence, std::uint32_t origin);
  [[nodiscard]] std::uint32_t find(std::uint64_t autograd_thread, std::uint64_t sequence) const;

 private:
  // Graphs older than this many notes are no longer told apart: memory stays bounded.
  static constexpr std::size_t kMaxNotes = std::size_t{1} << 18;

  struct Note {
    std::uint64_t sequence;
    std::uint32_t origin;
  };
  std::unordered_map<std::uint64_t, std::deque<Note>> notes_;  // by autograd thread
};

}  // namespace peakline::capture
