// peakline show --live: follows a recording while it is being written.
#pragma once

#include <string>

namespace peakline::cli {

// Until the recording is complete or the user interrupts. Returns the exit code.
int follow(const std::string& path);

}  // namespace peakline::cli
