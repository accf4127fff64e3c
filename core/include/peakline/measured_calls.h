// A table of measured calls, one JSON object a line, and a profile's rates fitted to it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <peakline/device_profile.h>
#include <peakline/kernel_memory.h>
#include <peakline/status.h>

namespace peakline {

struct MeasuredCall {
  std::string family;  // "mm", "sdpa_bwd", ...
  std::string line;    // as it was read
  std::vector<OpCall> ops;
  double us = 0;  // between two events around it
};

struct MeasuredTable {
  std::vector<MeasuredCall> calls;
};

// Reads such a table. Lines of families that nobody knows are left out. Where a backward call's
// median is the host's (the GPU waits for launches), its best time counts.
Result<MeasuredTable> read_measured(std::string_view jsonl);

// What the model says for each call of the table, in its order.
std::vector<double> predict(const MeasuredTable& table, const DeviceProfile& gpu);
double predict(const MeasuredCall& call, const DeviceProfile& gpu);

// The profile with those rates changed that the table can tell, so that the mean absolute logarithm
// of predicted over measured is least. `rows`: which calls count; empty: all.
DeviceProfile fit_rates(const MeasuredTable& table, const DeviceProfile& start,
                        const std::vector<bool>& rows = {});

}  // namespace peakline
