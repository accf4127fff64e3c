// What follows from an op where not all of its operands are known.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "vgpu/values/bounds.h"

namespace peakline::vgpu {

struct Call;

struct ValueRule {
  enum class Kind : std::uint8_t {
    kNone,         // nothing but `range`
    kPointwise,    // element by element, and monotonic in each operand while the others stay
    kUnimodal,     // the same on either side of zero (abs, squares)
    kDivide,       // pointwise where the divisor keeps its sign
    kEqual,        // ==
    kUnequal,      // !=
    kBits,         // and, or, xor, not: of bools, and of numbers that are 0 or 1
    kReduceAlike,  // never less where an element grows; of equal elements it is that element
    kReduceSum,    // never less where an element grows; of equal elements it is their sum
    kMove,         // every element of a result is an element of an operand
    kConvert,      // copy_: as it is, in another type
  };
  Kind kind = Kind::kNone;
  bool creates = false;        // something follows even where nothing is known of the operands
  bool needs_all = false;      // next to nothing follows where nothing is known of one operand
  bool overwrites = false;     // its first operand is written without being read
  bool adds = false;           // a kMove that also has elements of its own (zeros of a triangle)
  std::uint8_t selectors = 0;  // arguments (bits) that say which elements a kMove takes
  // In what every element of result number `result` lies, whatever the operands are.
  std::optional<Range> (*range)(const Call& call, int result) = nullptr;
  bool whole = false;  // what `range` tells of are whole numbers, whatever their type
  bool picks = false;  // what `range` tells of are indices of chosen elements
};

// The number that a host tensor without dimensions is.
std::optional<double> host_number(const at::Tensor& tensor) noexcept;

// Null when there is none for this op ("aten::logical_or").
const ValueRule* value_rule(std::string_view name);

// Not every overload does what the op's name says.
bool applies(const ValueRule& rule, const Call& call);

}  // namespace peakline::vgpu
