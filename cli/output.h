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

// Say what is wrong, and give the exit code for it: a bad input, or an answer that could not be written.
int refuse_input(const Status& status);
int fail_to_write(const Status& status);

// stdout is a terminal that wants colour (NO_COLOR and TERM=dumb are honoured).
bool wants_colour();

}  // namespace peakline::cli
