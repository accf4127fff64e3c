// "What was the highest value since event e?", for any e that is still of interest.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <peakline/units.h>

namespace peakline {

// Keeps only values that could still be an answer: each one is higher than all that came after it.
// So it holds at most about as many entries as there are live blocks.
class MaxSince {
 public:
  void add(std::uint64_t event, Bytes value) {
    while (!falling_.empty() && falling_.back().value <= value) falling_.pop_back();
    falling_.push_back({event, value});
  }

  // The highest value added at `event` or later; 0 when none was.
  [[nodiscard]] Bytes since(std::uint64_t event) const {
    const auto first =
        std::lower_bound(falling_.begin(), falling_.end(), event,
                         [](const Entry& entry, std::uint64_t e) { return entry.event < e; });
    return first == falling_.end() ? Bytes{} : first->value;
  }

  // Nobody will ask about what was added so far.
  void forget() { falling_.clear(); }

 private:
  struct Entry {
    std::uint64_t event;
    Bytes value;
  };
  std::vector<Entry> falling_;
};

}  // namespace peakline
