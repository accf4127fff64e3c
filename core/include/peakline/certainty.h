// How the size of a block was come by, where nothing was measured.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace peakline {

// From the surest to the least sure.
enum class Certainty : std::uint8_t {
  kExact,        // follows from torch's sources, or was measured on this GPU with these versions
  kModelled,     // a rule fitted to a closed library, or a rule where it was never measured
  kGuessed,      // a neighbour's rule, or a compiled region that ran eagerly
  kOutputsOnly,  // a result of an op whose scratch memory nobody knows: that is left out
};

inline constexpr std::size_t kCertainties = 4;

// As answers name them.
inline constexpr std::array<std::string_view, kCertainties> kCertaintyNames{
    "exact", "modelled", "guessed", "outputs_only"};

}  // namespace peakline
