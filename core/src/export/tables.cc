#include <algorithm>

#include "export/ranks.h"
#include "export/rows.h"

namespace peakline {
namespace {

bool is_streamed(std::string_view table) { return table == "blocks" || table == "events"; }

Status write_table(std::string_view table, const ExportInput& run, const RankReader::Rank& rank,
                   TableWriter& writer) {
  if (!is_streamed(table)) {
    write_summary_table(table, rank.summary, rank.rank, run.file, writer);
    return {};
  }
  Result<TraceReader> reader = open_reader(run.open);
  if (!reader.ok()) return reader.status();
  return table == "blocks" ? write_blocks(*reader, rank.summary, rank.rank, writer)
                           : write_events(*reader, rank.rank, writer);
}

}  // namespace

std::size_t table_reads(std::span<const std::string> tables) {
  return 1 + static_cast<std::size_t>(std::ranges::count_if(tables, is_streamed));
}

Result<std::vector<std::string>> export_tables(std::span<const ExportInput> runs,
                                               std::span<const std::string> tables,
                                               TableWriter& writer) {
  RankReader reader(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Result<RankReader::Rank> rank = reader.read(i);
    if (!rank.ok()) return rank.status();
    writer.begin_recording(rank->rank, runs[i].file);
    for (const std::string& table : tables) {
      writer.begin_table(schema_of(table));
      PEAKLINE_RETURN_IF_ERROR(write_table(table, runs[i], *rank, writer));
      writer.end_table();
      PEAKLINE_RETURN_IF_ERROR(writer.status());
    }
    writer.end_recording();
  }
  PEAKLINE_RETURN_IF_ERROR(writer.finish());
  return std::move(reader.warnings());
}

}  // namespace peakline
