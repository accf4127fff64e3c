// Recordings that stay below a size, however long the run.
#pragma once

#include <memory>

#include <peakline/trace.h>
#include <peakline/units.h>

namespace peakline {

// Keeps everything until half of `most` is written. From then on the run is summed up in stretches, each
// longer than the one before: of a stretch there remain its steps with their peaks, what is alive at its
// end, and, when a device held more than ever before, everything that was alive at that moment.
std::shared_ptr<EventFilter> make_size_bound(Bytes most);

}  // namespace peakline
