#pragma once

#include <vector>

#include <peakline/device_profile.h>

namespace peakline::profile {

// The profiles of the embedded file. It is part of the build, and a test reads all of it: what
// cannot be read is left out.
std::vector<DeviceProfile> read_embedded();

}  // namespace peakline::profile
