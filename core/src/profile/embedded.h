#pragma once

#include <string_view>

namespace peakline::profile {

// core/data/gpus.toml, as it was when the library was built.
extern const std::string_view kEmbeddedProfiles;

}  // namespace peakline::profile
