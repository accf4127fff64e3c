// Lines of the program, regions and growth as text.
#pragma once

#include <string>

#include <peakline/summary.h>
#include <peakline/text.h>

namespace peakline {

// What lines are added up to.
enum class LineGroup { kLine, kFunction, kFile };

// Each with its heading; empty when the recording has none.
std::string line_section(const DeviceSummary& device, LineGroup group, std::size_t top,
                         const Paint& paint);
std::string region_section(const DeviceSummary& device, const Paint& paint);
// Of every device; the first is what the run is about, and is not named.
std::string growth_sections(const Summary& summary, std::size_t top, const Paint& paint);

}  // namespace peakline
