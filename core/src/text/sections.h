// The sections that the texts about a run have in common, each with its heading or empty.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <peakline/summary.h>
#include <peakline/text.h>

namespace peakline {

// "  Peak allocated    409.0 MiB   step 2, forward": a remark that is too long gives way in its
// middle, or goes on below.
std::string fact(std::string_view label, std::string_view value, std::string_view remark);
std::string wrapped_fact(std::string_view label, std::string_view value, std::string_view remark);

std::string device_title(const DeviceSummary& device, const Paint& paint);
// How much, when, and below it in which op and module.
std::string peak_lines(const DeviceSummary& device);
// How surely the sizes at the peak are known, where they were worked out.
std::string confidence_line(const DeviceSummary& device);
std::string reserved_line(const DeviceSummary& device);
// `partial`: more would have run, so that what fits does so far. `spare`: of the limit; the limit
// less what was reserved, unless told.
std::string limit_line(const DeviceSummary& device, bool partial,
                       std::optional<Bytes> spare = std::nullopt);
std::string settings_line(const Summary& summary);

// Changes that need less, each with what to write.
std::string advice_lines(const std::vector<Saving>& advice, const Paint& paint);

std::string category_bars(const DeviceSummary& device, const Paint& paint);

// Columns of a table of modules, and the cells right of a module's name.
std::vector<std::string> module_columns();
std::vector<std::string> module_cells(const ModuleRow& row);

// The first and the last ones, at most `most`; steady runs repeat in between.
std::string step_table(const std::vector<StepRow>& steps, std::size_t most, const Paint& paint);

// All but the first device.
std::string other_devices(const Summary& summary, const Paint& paint);

}  // namespace peakline
