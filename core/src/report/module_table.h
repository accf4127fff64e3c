// Who held what at a device's peak, module by module.
#pragma once

#include <span>
#include <vector>

#include <peakline/dictionary.h>
#include <peakline/summary.h>

#include "ledger/module_spans.h"
#include "ledger/moment_set.h"

namespace peakline {

// One row per module that held anything or ran, depth first, in order of definition.
std::vector<ModuleRow> module_table(const Dictionary& dictionary, std::span<const Held> held,
                                    const ModuleSpansPass& spans, DeviceId device);

// Non-zero entries by name, largest first. `level`: fold second-level categories into the first.
enum class CategoryLevel { kTop, kBoth };
std::vector<NamedBytes> by_category(const Dictionary& dictionary, std::span<const Held> held,
                                    CategoryLevel level);

}  // namespace peakline
