// The page of the HTML report, as it was built into this program.
#pragma once

#include <string_view>

namespace peakline::cli {

extern const std::string_view kReportPage;

}  // namespace peakline::cli
