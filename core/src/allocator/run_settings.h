// What a recording keeps of the allocator that the run had.
#pragma once

#include <optional>
#include <string>

#include <peakline/trace.h>
#include <peakline/units.h>

namespace peakline {

// Of one device. A recording from before settings were kept has none.
struct RunSettings {
  std::optional<std::string> conf;  // as given; none: not known
  std::optional<Bytes> limit;       // of what the allocator may reserve
  Bytes outside;  // the device's bytes that others use: the CUDA context, other processes

  static RunSettings of(const RunInfo& info, const std::string& device);
};

}  // namespace peakline
