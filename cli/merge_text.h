// A merge as text.
#pragma once

#include <string>

#include <peakline/merge.h>
#include <peakline/text.h>

namespace peakline::cli {

// At most `top` modules; 80 columns wide.
std::string merge_text(const RankMerge& merge, std::size_t top, const Paint& paint);

}  // namespace peakline::cli
