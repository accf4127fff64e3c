// Lines of the program, regions and growth, as rows.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <peakline/summary.h>

#include "ledger/failure.h"
#include "ledger/growth.h"
#include "ledger/line_usage.h"
#include "ledger/moment_set.h"
#include "ledger/region_spans.h"

namespace peakline {

// Largest at the peak first.
std::vector<LineRow> line_table(const Dictionary& dictionary, std::span<const Held> held,
                                const LineUsagePass& lines, DeviceId device);

// In the order in which they were first entered; empty when the program named none.
std::vector<RegionRow> region_table(std::span<const Held> held, const RegionSpansPass& regions,
                                    DeviceId device);

// `info` may name holders.
std::vector<GrowthRow> growth_table(const Dictionary& dictionary, const GrowthPass& growth,
                                    DeviceId device, const RunInfo& info);

FailureRow failure_row(const Dictionary& dictionary, const Failure& failure);

// The lines of a stack, the innermost first.
std::vector<CodePlace> stack_places(const Dictionary& dictionary, StackId stack);

}  // namespace peakline
