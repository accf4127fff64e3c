// Opening what the user named.
#pragma once

#include <string>

#include <peakline/summary.h>
#include <peakline/trace.h>

namespace peakline::cli {

Result<TraceReader> open_recording(const std::string& path);
Result<Summary> read_summary(const std::string& path, const SummaryOptions& options = {});
// The whole of a small file.
Result<std::string> read_text(const std::string& path);

}  // namespace peakline::cli
