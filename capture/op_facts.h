// What is known of an operator besides its name.
#pragma once

#include <ATen/record_function.h>

#include <string>

namespace peakline::capture {

// One operator overload. Lives as long as the process.
struct OpFacts {
  std::string name;        // "aten::addmm"
  std::string overload;    // "out", or empty
  bool composite = false;  // decomposes above autograd, so a dispatch mode sees its parts instead
};

// Null for a range that is no operator.
[[nodiscard]] const OpFacts* facts_of(const at::RecordFunction& call);

}  // namespace peakline::capture
