// Where answers and complaints go.
#pragma once

#include <string>
#include <string_view>

#include <peakline/status.h>

namespace peakline::cli {

// Writes to a file, or to stdout for "-".
Status write_output(const std::string& path, std::string_view text);

// "peakline: <sentence>" on stderr.
void complain(std::string_view sentence);

// The exit code for a status that is not ok, after saying what is wrong.
int fail(const Status& status);

// stdout is a terminal that wants colour (NO_COLOR and TERM=dumb are honoured).
bool wants_colour();

}  // namespace peakline::cli
