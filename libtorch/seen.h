// Whether torch's own modules are seen.
#pragma once

namespace peakline {

// This library was met before torch's, so calls of torch's modules come here first.
[[nodiscard]] bool sees_torch_modules() noexcept;

}  // namespace peakline
