#include "capture/node_origins.h"

#include <algorithm>
#include <iterator>

namespace peakline::capture {

void NodeOrigins::note(std::uint64_t autograd_thread, std::uint64_t sequence,
                       std::uint32_t origin) {
  std::deque<Note>& list = notes_[autograd_thread];
  // No node was made since a note with this number.
  while (!list.empty() && list.back().sequence >= sequence) list.pop_back();
  if (!list.empty() && list.back().origin == origin) return;
  list.push_back({sequence, origin});
  if (list.size() > kMaxNotes) list.pop_front();
}

std::uint32_t NodeOrigins::find(std::uint64_t autograd_thread, std::uint64_t sequence) const {
  const auto list = notes_.find(autograd_thread);
  if (list == notes_.end()) return 0;
  const auto after = std::upper_bound(
      list->second.begin(), list->second.end(), sequence,
      [](std::uint64_t wanted, const Note& note) { return wanted < note.sequence; });
  return after == list->second.begin() ? 0 : std::prev(after)->origin;
}

}  // namespace peakline::capture
