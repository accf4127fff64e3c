// A summary as text for people.
#pragma once

#include <string>

#include <peakline/summary.h>
#include <peakline/text.h>

namespace peakline {

// What a recording can be looked at by.
enum class ShowBy {
  kEverything,
  kCategory,
  kModule,
  kOp,
  kLine,
  kFunction,
  kFile,
  kRegion,
  kGrowth
};

struct ShowOptions {
  std::size_t depth = 2;  // of the module tree; 0 shows the roots alone
  std::size_t top = 10;   // ops, lines
  std::size_t steps = 8;
  ShowBy by = ShowBy::kEverything;  // the peak, and this table alone
};

std::string show_text(const std::string& name, const Summary& summary, const ShowOptions& options,
                      const Paint& paint);

}  // namespace peakline
