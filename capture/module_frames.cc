#include "capture/module_frames.h"

#include <algorithm>

namespace peakline::capture {

FrameId ModuleFrames::child(FrameId parent, ModuleId module) {
  const auto [found, added] = index_.try_emplace({parent, module.raw()}, 0);
  if (added) {
    found->second = static_cast<FrameId>(frames_.size());
    frames_.push_back({module, parent});
  }
  return found->second;
}

void ModuleFrames::chain(FrameId frame, std::vector<ModuleId>& modules) const {
  modules.clear();
  for (; frame != 0; frame = frames_[frame].parent) modules.push_back(frames_[frame].module);
  std::reverse(modules.begin(), modules.end());
}

}  // namespace peakline::capture
