// Text of a recording may be any bytes; formats of others want UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace peakline {

// `text` itself where it is UTF-8, else a copy in `scratch` with U+FFFD for each byte that is not.
std::string_view valid_utf8(std::string_view text, std::string& scratch);

}  // namespace peakline
