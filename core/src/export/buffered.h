// Small writes gathered into large ones.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <peakline/status.h>
#include <peakline/trace.h>

namespace peakline {

// Errors are sticky: what follows one is dropped. Not thread-safe.
class Buffered {
 public:
  explicit Buffered(std::unique_ptr<Sink> sink) : sink_(std::move(sink)) {
    text_.reserve(kFull * 2);
  }

  // Append here, then call settle().
  [[nodiscard]] std::string& text() noexcept { return text_; }
  void settle() {
    if (text_.size() >= kFull) drain();
  }
  void add(std::string_view text) {
    text_ += text;
    settle();
  }
  Status finish() {
    drain();
    if (status_.ok()) status_ = sink_->flush();
    return status_;
  }
  [[nodiscard]] const Status& status() const noexcept { return status_; }

 private:
  static constexpr std::size_t kFull = std::size_t{256} << 10;

  void drain() {
    if (status_.ok()) status_ = sink_->write(std::as_bytes(std::span(text_)));
    text_.clear();
  }

  std::unique_ptr<Sink> sink_;
  std::string text_;
  Status status_;
};

}  // namespace peakline
