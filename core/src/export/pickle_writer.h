// A Python pickle of plain data, written as it grows: protocol 2, which every reader of snapshots knows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "export/buffered.h"

namespace peakline {

// A value that was written and can be written again by its number.
using MemoId = std::uint32_t;

// Values come one after another; a list or dict is open between its begin and end. Texts are UTF-8, and
// are kept: give it words, not sentences without end. Not thread-safe.
class PickleWriter {
 public:
  explicit PickleWriter(std::unique_ptr<Sink> sink);

  // Items are handed over in pieces, so that readers need not hold the whole list at once.
  void begin_list();
  void end_list();
  // Call it before each item of a list that may be long.
  void next_item();
  void begin_dict();
  void end_dict();

  void number(std::int64_t value);
  void text(std::string_view value);
  void truth(bool value);
  void pair(std::int64_t first, std::int64_t second);
  void key_number(std::string_view key, std::int64_t value) { text(key), number(value); }
  void key_text(std::string_view key, std::string_view value) { text(key), text(value); }

  // The value written last, for use().
  MemoId remember();
  void use(MemoId value);

  Status finish();
  [[nodiscard]] const Status& status() const noexcept { return file_.status(); }

 private:
  void byte(int value) { file_.text() += static_cast<char>(value); }
  void fixed(std::uint64_t value, int bytes);

  Buffered file_;
  MemoId remembered_ = 0;
  std::unordered_map<std::string, MemoId> words_;
  std::vector<std::uint32_t> items_;  // of the piece at hand, for each open list
};

}  // namespace peakline
