// The summary as JSON values, for the export and for the report.
#pragma once

#include <nlohmann/json.hpp>

#include <peakline/summary.h>

namespace peakline {

nlohmann::ordered_json summary_json(const Summary& summary);

}  // namespace peakline
