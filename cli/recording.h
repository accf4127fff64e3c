// Opening what the user named.
#pragma once

#include <string>

#include <peakline/summary.h>
#include <peakline/trace.h>

namespace peakline::cli {

Result<TraceReader> open_recording(const std::string& path);
Result<Summary> read_summary(const std::string& path, const SummaryOptions& options = {});
// Fills in `summary.advice`; a recording that has been read can give none.
void add_advice(Summary& summary, const std::string& path);
// The whole of a small file.
Result<std::string> read_text(const std::string& path);

}  // namespace peakline::cli
