// The rows of each table, from a recording.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <peakline/export.h>
#include <peakline/ids.h>
#include <peakline/replay.h>
#include <peakline/summary.h>
#include <peakline/units.h>

#include "base/utf8.h"

namespace peakline {

// A row in the making: one call for each column, in the schema's order.
class Row {
 public:
  static constexpr std::size_t kMost = 24;

  Row& nothing() { return put(std::monostate{}); }
  Row& number(std::int64_t value) { return put(value); }
  Row& count(std::uint64_t value) { return put(value); }
  Row& bytes(Bytes value) { return put(value.raw()); }
  Row& bytes(const std::optional<Bytes>& value) { return value ? bytes(*value) : nothing(); }
  Row& time(TimeNs value) { return put(value.raw()); }
  Row& address(Address value) { return value == Address{} ? nothing() : count(value.raw()); }
  // Nothing for an empty text.
  Row& text(std::string_view value) {
    if (value.empty()) return nothing();
    return put(valid_utf8(value, scratch_[size_ % kMost]));
  }

  void write(TableWriter& writer) {
    writer.row(std::span(cells_).first(size_));
    size_ = 0;
  }

 private:
  Row& put(Cell cell) {
    assert(size_ < kMost);
    cells_[size_++] = cell;
    return *this;
  }

  std::array<Cell, kMost> cells_{};
  std::array<std::string, kMost> scratch_;  // behind texts that had to be made valid
  std::size_t size_ = 0;
};

const TableSchema& schema_of(std::string_view table);

// The tables that a summary answers: all but blocks and events.
void write_summary_table(std::string_view table, const Summary& summary, std::int64_t rank,
                         std::string_view file, TableWriter& writer);

// blocks: one row for each block as it dies, then those that outlive the recording.
Status write_blocks(TraceReader& reader, const Summary& summary, std::int64_t rank,
                    TableWriter& writer);

// events: one row for each event.
Status write_events(TraceReader& reader, std::int64_t rank, TableWriter& writer);

}  // namespace peakline
