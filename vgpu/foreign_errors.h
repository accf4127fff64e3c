// Errors of ops that are written in Python, forgotten by who knows Python.
#pragma once

#include <atomic>
#include <exception>

namespace peakline::vgpu {

// Whether `error`, which has just been caught, may be passed over; then Python has forgotten it. An
// error that ends the program (Ctrl-C) may not.
using ForgetError = bool (*)(const std::exception& error);

inline std::atomic<ForgetError> g_forget_error{nullptr};

inline bool forget_error(const std::exception& error) {
  const ForgetError forget = g_forget_error.load(std::memory_order_relaxed);
  return forget != nullptr && forget(error);
}

}  // namespace peakline::vgpu
