// The facts about a run, limited in size, with the same limit for writers and readers.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <peakline/trace.h>

namespace peakline::trace {

class InfoTable {
 public:
  enum class Change { kNone, kChanged, kNoRoom };

  Change set(std::string_view key, std::string_view value) {
    const auto found = info_.find(std::string(key));
    if (found != info_.end() && found->second == value) return Change::kNone;
    const std::size_t before = found == info_.end() ? 0 : size_of(key, found->second);
    const std::size_t after = size_of(key, value);
    if (size_ - before + after > kMaxBytes) return Change::kNoRoom;
    size_ += after - before;
    info_.insert_or_assign(std::string(key), std::string(value));
    return Change::kChanged;
  }

  [[nodiscard]] const RunInfo& info() const noexcept { return info_; }

 private:
  static constexpr std::size_t kMaxBytes = std::size_t{16} << 20;
  static constexpr std::size_t kEntryBytes = 64;  // so that empty facts are not free

  static std::size_t size_of(std::string_view key, std::string_view value) {
    return key.size() + value.size() + kEntryBytes;
  }

  RunInfo info_;
  std::size_t size_ = 0;
};

}  // namespace peakline::trace
