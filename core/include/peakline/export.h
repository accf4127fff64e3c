// Recordings for other people's tools: tables, traces and snapshots. docs/export.md has the forms.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <peakline/import.h>
#include <peakline/status.h>
#include <peakline/trace.h>

namespace peakline {

// A recording to export. It is read more than once.
struct ExportInput {
  std::string file;  // for messages, and for the rank where the recording does not say it
  SourceOpener open;
};

// One value of a table; nothing where there is none.
using Cell = std::variant<std::monostate, std::int64_t, std::uint64_t, std::string_view>;

struct Column {
  enum class Type : std::uint8_t { kInteger, kText };
  std::string_view name;
  Type type = Type::kInteger;
};

struct TableSchema {
  std::string_view name;
  std::span<const Column> columns;
};

// Every table, in the order in which a recording's are written.
std::span<const TableSchema> export_schemas();

// Takes the tables of one recording after another. Errors are sticky: rows after one are dropped,
// and status() says what it was.
class TableWriter {
 public:
  virtual ~TableWriter() = default;
  virtual void begin_recording(std::int64_t rank, std::string_view file) = 0;
  virtual void begin_table(const TableSchema& table) = 0;
  // Texts are UTF-8, and hold until the call returns.
  virtual void row(std::span<const Cell> cells) = 0;
  virtual void end_table() = 0;
  virtual void end_recording() = 0;
  virtual Status finish() = 0;
  [[nodiscard]] virtual const Status& status() const noexcept = 0;
};

// Where the rows of a table go, by the table's name.
using SinkOpener = std::function<Result<std::unique_ptr<Sink>>(std::string_view table)>;

// One CSV for each table, with a header line.
std::unique_ptr<TableWriter> make_csv_writer(SinkOpener open);
// One JSON document, one row a line.
std::unique_ptr<TableWriter> make_json_writer(std::unique_ptr<Sink> sink);

// One SQLite database at `path`, where no file is; with indexes and views. Says why, where peakline
// was built without SQLite. Of the library peakline::sqlite.
Result<std::unique_ptr<TableWriter>> make_sqlite_writer(const std::string& path);

// Which of the tables; empty is all. One sentence about a name that is none.
Result<std::vector<std::string>> choose_tables(std::span<const std::string> names);
// How often a recording is read for these.
std::size_t table_reads(std::span<const std::string> tables);

// Writes the tables of all recordings and gives the warnings about them. Ranks are told apart by the
// recordings, by their names, else by their order. Memory is bounded by one recording's live blocks,
// words and steps.
Result<std::vector<std::string>> export_tables(std::span<const ExportInput> runs,
                                               std::span<const std::string> tables,
                                               TableWriter& writer);

// A Perfetto trace (TracePackets): counters of what each device holds in all, reserved and by
// category; steps, phases, module calls and ops as slices. A rank is a process. Beyond what tables
// need, memory grows by one byte for each allocation.
Result<std::vector<std::string>> export_perfetto(std::span<const ExportInput> runs,
                                                 std::unique_ptr<Sink> sink);

// One of torch's memory snapshots (a pickle of plain containers), with the keys of torch 2.11 to 2.15:
// a trace for each accelerator, and the segments at the end. Frames are the op, the modules around it
// and the phase. A rank's device is the next device of the snapshot. Beyond what tables need, memory
// grows by one byte for each allocation.
Result<std::vector<std::string>> export_snapshot(std::span<const ExportInput> runs,
                                                 std::unique_ptr<Sink> sink);

}  // namespace peakline
