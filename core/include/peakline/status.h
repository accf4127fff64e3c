// Errors as values: core never throws on bad input and never prints.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>

namespace peakline {

enum class StatusCode {
  kOk,
  kInvalidInput,  // the file or the value is not what it claims to be
  kUnsupported,   // well formed, but not something this version can do
  kIo,            // the operating system said no
};

// One sentence for the user: what is wrong, where, and what to do about it.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] bool ok() const noexcept { return code_ == StatusCode::kOk; }
  [[nodiscard]] StatusCode code() const noexcept { return code_; }
  [[nodiscard]] const std::string& message() const noexcept { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status invalid_input(std::string message) {
  return {StatusCode::kInvalidInput, std::move(message)};
}
inline Status unsupported(std::string message) {
  return {StatusCode::kUnsupported, std::move(message)};
}
inline Status io_error(std::string message) { return {StatusCode::kIo, std::move(message)}; }

// A value, or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    assert(!status_.ok() && "a Result without a value needs a reason");
  }

  [[nodiscard]] bool ok() const noexcept { return value_.has_value(); }
  [[nodiscard]] const Status& status() const noexcept { return status_; }
  [[nodiscard]] T& value() & { return *value_; }
  [[nodiscard]] const T& value() const& { return *value_; }
  [[nodiscard]] T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// Leaves the calling function with the status of `expr` when it is not ok.
#define PEAKLINE_RETURN_IF_ERROR(expr)                                          \
  do {                                                                          \
    if (::peakline::Status peakline_status_ = (expr); !peakline_status_.ok()) { \
      return peakline_status_;                                                  \
    }                                                                           \
  } while (false)

}  // namespace peakline
