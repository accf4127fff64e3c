// What the program was about, as every answer and export names it.
#pragma once

#include <string_view>

#include <peakline/context.h>
#include <peakline/event.h>

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

inline std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return era_name(Era::kForward);
    case Phase::kBackward:
      return era_name(Era::kBackward);
    case Phase::kOptimizer:
      return era_name(Era::kOptimizer);
  }
  return "";
}

inline std::string_view pass_name(ModulePass pass) {
  switch (pass) {
    case ModulePass::kForward:
      return era_name(Era::kForward);
    case ModulePass::kBackward:
      return era_name(Era::kBackward);
    case ModulePass::kRecompute:
      return era_name(Era::kRecompute);
  }
  return "";
}

}  // namespace peakline
