// Savings that a recording proves: the same allocations, played again without what a change would
// leave out or under other settings.
#pragma once

#include <cstdint>
#include <vector>

#include <peakline/import.h>
#include <peakline/status.h>
#include <peakline/summary.h>

namespace peakline {

// At most three, the largest first; each saves a hundredth of what is reserved or more, and a tenth
// where it is simulated roughly (docs/json.md). Reads the recording twice. Empty for a recording without a GPU, for one longer than `most_events`, and for
// one whose own reserved memory the simulation does not reproduce.
struct AdviceOptions {
  std::uint64_t most_events = 4'000'000;
};
Result<std::vector<Saving>> advise(const SourceOpener& open, const AdviceOptions& options = {});

}  // namespace peakline
