// Core's errors as libtorch's exceptions: one sentence each.
#pragma once

#include <c10/util/Exception.h>

#include <utility>

#include <peakline/status.h>

namespace peakline {

inline void throw_if_error(const Status& status) { TORCH_CHECK(status.ok(), status.message()); }

template <class T>
T value_or_throw(Result<T> result) {
  throw_if_error(result.status());
  return std::move(*result);
}

}  // namespace peakline
