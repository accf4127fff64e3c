// Events and definitions become the payload of one events chunk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <peakline/dictionary.h>
#include <peakline/event.h>

#include "base/coding.h"
#include "trace/format.h"

namespace peakline::trace {

// Bytes that grow at their end. Whoever puts makes room first.
class ColumnBuffer {
 public:
  void make_room(std::size_t bytes) {
    if (capacity_ - size_ < bytes) grow(bytes);
  }
  void byte(std::uint8_t value) noexcept { data_[size_++] = value; }
  void varint(std::uint64_t value) noexcept {
    size_ = static_cast<std::size_t>(coding::put_varint(&data_[size_], value) - data_.get());
  }
  void text(std::string_view text);  // makes its own room
  void clear() noexcept { size_ = 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] const std::uint8_t* data() const noexcept { return data_.get(); }

 private:
  void grow(std::size_t bytes);

  std::unique_ptr<std::uint8_t[]> data_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

// Holds one chunk's worth of records. Not thread-safe.
class EventEncoder {
 public:
  void event(const Event& event);
  void define_name(std::string_view text);
  void define_op(std::string_view name);
  void define_module(const ModuleInfo& module);
  void define_device(const DeviceInfo& device);
  void define_thread(std::string_view name);
  void define_category(const CategoryInfo& category);
  void define_line(const CodeLine& line);
  void define_stack(const StackInfo& stack);

  [[nodiscard]] std::uint64_t event_count() const noexcept { return event_count_; }
  [[nodiscard]] std::size_t size() const noexcept {
    return columns_[kRecords].size() + columns_[kTimes].size() + columns_[kAddresses].size();
  }
  // Puts the payload into `out`, and starts the next chunk.
  void take(std::vector<std::uint8_t>& out);

 private:
  struct BodyEncoder;

  void advance_time(TimeNs time);
  ColumnBuffer& definition(RecordKind kind);

  std::array<ColumnBuffer, kColumns> columns_;
  DeltaState state_;
  std::uint64_t base_time_ = 0;
  std::uint64_t base_block_ = 0;
  std::uint64_t event_count_ = 0;
  std::uint8_t time_flag_ = 0;
  bool started_ = false;  // an event has been seen, so time has a base
};

}  // namespace peakline::trace
