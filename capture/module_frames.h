// Which modules made an autograd node, so that its backward can be put down to them.
//
// Every autograd node carries the thread that made it and that thread's running number. Noting the
// number whenever a module is entered or left is enough to know, much later, inside which modules a
// node was made: no hooks on tensors, no change to the graph, and it works for any kind of output.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <peakline/ids.h>

#include "capture/node_origins.h"

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
  void note(std::uint64_t autograd_thread, std::uint64_t sequence, FrameId frame) {
    origins_.note(autograd_thread, sequence, frame);
  }
  [[nodiscard]] FrameId find(std::uint64_t autograd_thread, std::uint64_t sequence) const {
    return origins_.find(autograd_thread, sequence);
  }

 private:
  struct Frame {
    ModuleId module;
    FrameId parent = 0;
  };

  std::vector<Frame> frames_;
  std::map<std::pair<FrameId, std::uint32_t>, FrameId> index_;
  NodeOrigins origins_;
};

}  // namespace peakline::capture
