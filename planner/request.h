// The lines that peakline and its planner exchange: words with blanks between them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "planner/convolution.h"

namespace peakline::planner {

// "forward float16 channels_last deterministic=0 tf32=1 input=8,3,32,32 weight=… output=…
//  padding=… stride=… dilation=…"; nothing when it is not one.
std::optional<Convolution> parse_request(std::string_view line);

// "plan engine=62 workspace=131 unsplit=131 TILE_SIZE=0 …"
std::string answer(const Plan& plan);
std::string answer(const Refused& refused);

}  // namespace peakline::planner
