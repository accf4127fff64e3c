// What a virtual GPU's streams did by its clock, as tracks of a Perfetto trace.
#pragma once

#include <string_view>

#include "export/perfetto_writer.h"

namespace peakline {

// `streams` is the recording's fact of that name (docs/trace-format.md): the last step, in times of the
// clock. It is drawn from `begin` on, where that step begins in the recording. Text that is not such a
// fact is left out.
void write_streams(PerfettoWriter& writer, TrackId process, std::string_view streams, TimeNs begin);

}  // namespace peakline
