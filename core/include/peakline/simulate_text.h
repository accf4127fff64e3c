// What a simulation says, for people.
#pragma once

#include <string>

#include <peakline/simulate.h>
#include <peakline/text.h>

namespace peakline {

std::string simulation_text(const std::string& file, const SimulationResult& result,
                            const Paint& paint);

}  // namespace peakline
