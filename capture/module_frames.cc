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

void ModuleFrames::note(std::uint64_t autograd_thread, std::uint64_t sequence, FrameId frame) {
  std::deque<Boundary>& list = boundaries_[autograd_thread];
  if (!list.empty() && list.back().sequence >= sequence) {
    // No node was made since the last note.
    list.back().frame = frame;
    return;
  }
  if (!list.empty() && list.back().frame == frame) return;
  list.push_back({sequence, frame});
  if (list.size() > kMaxBoundaries) list.pop_front();
}

FrameId ModuleFrames::find(std::uint64_t autograd_thread, std::uint64_t sequence) const {
  const auto list = boundaries_.find(autograd_thread);
  if (list == boundaries_.end()) return 0;
  const auto after = std::upper_bound(
      list->second.begin(), list->second.end(), sequence,
      [](std::uint64_t wanted, const Boundary& boundary) { return wanted < boundary.sequence; });
  return after == list->second.begin() ? 0 : std::prev(after)->frame;
}

}  // namespace peakline::capture
