// Where cuDNN and the program that asks it are, if they are installed.
#pragma once

#include <optional>

#include <peakline/conv_planner.h>

namespace peakline {

// $PEAKLINE_CUDNN names the folder of libcudnn.so.9; the program lies beside this library's folder, or
// where $PEAKLINE_PLANNER says. Without them convolutions are estimated by rules.
std::optional<PlannerFiles> find_planner();

}  // namespace peakline
