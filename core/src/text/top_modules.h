// Which modules a short table shows.
#pragma once

#include <string>
#include <vector>

#include <peakline/summary.h>

namespace peakline {

struct ShownModule {
  std::string path;  // its own, or that of a run of layers: "Net.layers.1-31, each"
  const ModuleRow* row = nullptr;
};

// The `most` that hold most, in the order of the tree. Modules that only pass on one below them are
// left out, and numbered neighbours that hold the same are one.
std::vector<ShownModule> top_modules(const std::vector<ModuleRow>& rows, std::size_t most);

}  // namespace peakline
