// Which modules made an autograd node, so that its backward can be put down to them.
//
// Every autograd node carries the thread that made it and that thread's running number. Noting the
// number whenever a module is entered or left is enough to know, much later, inside which modules a
// node was made: no hooks on tensors, no change to the graph, and it works for any kind of output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include <peakline/ids.h>

namespace peakline::capture {

// A chain of modules, each called by the one before. Equal chains have equal ids; 0 is no module.
using FrameId = std::uint32_t;

// Not thread-safe.
class ModuleFrames {
 public:
  ModuleFrames() : frames_{{}} {}

  [[nodiscard]] FrameId child(FrameId parent, ModuleId module);
  [[nodiscard]] ModuleId module(FrameId frame) const noexcept { return frames_[frame].module; }
  // Fills `modules` with the chain from the outermost module to the innermost.
  void chain(FrameId frame, std::vector<ModuleId>& modules) const;

  // From node number `sequence` on, what `autograd_thread` makes belongs to `frame`.
  void note(std::uint64_t autograd_thread, std::uint64_t sequence, FrameId frame);
  [[nodiscard]] FrameId find(std::uint64_t autograd_thread, std::uint64_t sequence) const;

 private:
  // Graphs older than this many module calls are no longer told apart: memory stays bounded.
  static constexpr std::size_t kMaxBoundaries = std::size_t{1} << 18;

  struct Frame {
    ModuleId module;
    FrameId parent = 0;
  };
  struct Boundary {
    std::uint64_t sequence;
    FrameId frame;
  };

  std::vector<Frame> frames_;
  std::map<std::pair<FrameId, std::uint32_t>, FrameId> index_;
  std::unordered_map<std::uint64_t, std::deque<Boundary>> boundaries_;  // by autograd thread
};

}  // namespace peakline::capture
