// The answer of `peakline estimate`, for people.
#pragma once

#include <string>
#include <string_view>

#include <peakline/status.h>
#include <peakline/text.h>

namespace peakline {

// `answer` is the JSON object that `estimate --json` writes (docs/json.md). `what` ran, and all of
// it took `seconds`. Parts that the object lacks are left out.
Result<std::string> estimate_text(std::string_view answer, std::string_view what, double seconds,
                                  const Paint& paint);

}  // namespace peakline
