// A summary as text for people.
#pragma once

#include <string>

#include <peakline/summary.h>
#include <peakline/text.h>

namespace peakline {

struct ShowOptions {
  std::size_t depth = 2;  // of the module tree; 0 shows the roots alone
  std::size_t top = 10;   // ops
  std::size_t steps = 8;
};

std::string show_text(const std::string& name, const Summary& summary, const ShowOptions& options,
                      const Paint& paint);

}  // namespace peakline
