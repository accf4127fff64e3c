// Guesses what a file that is no recording might be, for the message.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace peakline::trace {

// "a gzip file", or empty when nothing fits. `start` is the beginning of the file.
std::string_view sniff(std::span<const std::uint8_t> start) noexcept;

}  // namespace peakline::trace
