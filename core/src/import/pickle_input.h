// The bytes of a pickle, one after the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <peakline/status.h>
#include <peakline/trace.h>

namespace peakline::pickle {

// Buffered bytes of a source that know where they are.
class Input {
 public:
  explicit Input(Source& source) : source_(source), buffer_(std::size_t{256} << 10) {}

  // Any further read after a failure fails, too.
  bool read(void* to, std::size_t size) {
    auto* out = static_cast<char*>(to);
    while (size > 0) {
      if (at_ == filled_ && !fill()) return false;
      const std::size_t piece = std::min(size, filled_ - at_);
      std::memcpy(out, buffer_.data() + at_, piece);
      at_ += piece;
      out += piece;
      size -= piece;
    }
    return true;
  }
  bool byte(std::uint8_t& value) {
    if (at_ == filled_ && !fill()) return false;
    value = static_cast<std::uint8_t>(buffer_[at_++]);
    return true;
  }
  // Up to a newline, which is taken and not returned.
  bool line(std::string& text) {
    text.clear();
    for (std::uint8_t c = 0; byte(c);) {
      if (c == '\n') return true;
      text += static_cast<char>(c);
      if (text.size() > (std::size_t{1} << 20)) return false;
    }
    return false;
  }
  [[nodiscard]] std::uint64_t position() const noexcept { return before_ + at_; }
  [[nodiscard]] const Status& status() const noexcept { return status_; }
  [[nodiscard]] std::string_view name() const noexcept { return source_.name(); }

 private:
  bool fill() {
    before_ += filled_;
    at_ = filled_ = 0;
    const Result<std::size_t> got = source_.read(buffer_);
    if (!got.ok()) {
      status_ = got.status();
      return false;
    }
    filled_ = *got;
    return filled_ > 0;
  }

  Source& source_;
  std::vector<std::byte> buffer_;
  std::size_t at_ = 0;
  std::size_t filled_ = 0;
  std::uint64_t before_ = 0;
  Status status_;
};

}  // namespace peakline::pickle
