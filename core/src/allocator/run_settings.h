// What a recording keeps of the allocator that the run had.
#pragma once

#include <optional>
#include <string>

#include <peakline/allocator_config.h>
#include <peakline/trace.h>
#include <peakline/units.h>

namespace peakline {

// Of one device. A recording from before settings were kept has none.
struct RunSettings {
  std::optional<std::string> conf;  // as given; none: not known
  std::optional<Bytes> limit;       // that the allocator was set to
  std::optional<Bytes> memory;      // that a virtual GPU had for it
  Bytes outside;  // the device's bytes that others use: the CUDA context, other processes

  static RunSettings of(const RunInfo& info, const std::string& device);
};

// The torch release whose rules the run's allocator had; the newest that is known well where the
// recording does not say, or names one that is not supported.
TorchVersion allocator_release(const RunInfo& info);

}  // namespace peakline
