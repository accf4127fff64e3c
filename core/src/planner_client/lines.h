// The lines that are exchanged with peakline-planner (its side: planner/request.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <peakline/conv_planner.h>

namespace peakline::planner_client {

// The GPU as cuDNN wants it described: one line of JSON.
std::string device_line(const DeviceProfile& gpu);
std::string request_line(const ConvQuery& query);

// "cudnn 91900" is "9.19.0"; nothing when the line is no greeting.
std::optional<std::string> parse_greeting(std::string_view line);
// "plan engine=62 workspace=131 unsplit=131 TILE_SIZE=0 …"; nothing when it is none.
std::optional<ConvPlan> parse_plan(std::string_view line);

}  // namespace peakline::planner_client
