// What a simulation says, for people.
#pragma once

#include <string>

#include <peakline/simulate.h>

#include "text.h"

namespace peakline::cli {

std::string simulation_text(const std::string& file, const SimulationResult& result,
                            const Paint& paint);

}  // namespace peakline::cli
