// What the program was about, as answers name it.
#pragma once

#include <string_view>

#include <peakline/context.h>

namespace peakline {

inline std::string_view era_name(Era era) {
  switch (era) {
    case Era::kForward:
      return "forward";
    case Era::kRecompute:
      return "recompute";
    case Era::kBackward:
      return "backward";
    case Era::kOptimizer:
      return "optimizer";
  }
  return "";
}

}  // namespace peakline
