// Files that peakline writes.
#pragma once

#include <string>

#include <peakline/status.h>

namespace peakline {

// Opens `path` for writing (or for both, with `readable`), empty, and gives its descriptor. A symbolic
// link is refused: somebody may have put it there to have another file overwritten. Those in /dev, such as
// /dev/stdout, are the system's own.
Result<int> open_new_file(const std::string& path, bool readable = false);

}  // namespace peakline
