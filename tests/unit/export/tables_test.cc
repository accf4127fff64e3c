#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include <peakline/export.h>
#include <peakline/summary.h>

#include "base/utf8.h"
#include "trace_builder.h"

namespace peakline::testing {
namespace {

// Keeps every row as text, by table and column.
class KeptTables : public TableWriter {
 public:
  using Rows = std::vector<std::map<std::string, std::string>>;

  void begin_recording(std::int64_t, std::string_view) override {}
  void begin_table(const TableSchema& table) override { table_ = &table; }
  void row(std::span<const Cell> cells) override {
    ASSERT_EQ(cells.size(), table_->columns.size());
    std::map<std::string, std::string> row;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      std::string text;
      if (const auto* number = std::get_if<std::int64_t>(&cells[i])) text = std::to_string(*number);
      if (const auto* count = std::get_if<std::uint64_t>(&cells[i])) text = std::to_string(*count);
      if (const auto* word = std::get_if<std::string_view>(&cells[i])) text = *word;
      row[std::string(table_->columns[i].name)] = text;
    }
    tables[std::string(table_->name)].push_back(row);
  }
  void end_table() override {}
  void end_recording() override {}
  Status finish() override { return {}; }
  [[nodiscard]] const Status& status() const noexcept override { return status_; }

  std::map<std::string, Rows> tables;

 private:
  const TableSchema* table_ = nullptr;
  Status status_;
};

ExportInput input(const std::vector<std::byte>& bytes, const std::string& name) {
  return {name,
          [&bytes]() -> Result<std::unique_ptr<Source>> { return make_memory_source(bytes); }};
}

KeptTables::Rows rows(const TraceBuilder& trace, const std::string& table) {
  const std::vector<std::byte> bytes = trace.bytes();
  const std::vector<ExportInput> runs{input(bytes, "run.peak")};
  const std::vector<std::string> names{table};
  KeptTables kept;
  EXPECT_TRUE(export_tables(runs, names, kept).ok());
  return kept.tables[table];
}

TEST(ExportBlocks, ABlockHasItsBirthItsDeathAndWhoMadeIt) {
  TraceBuilder trace;
  trace.enter("Net").enter("Net.fc").op("aten::mm").alloc("a", 4_MiB, Bytes(4'000'000)).op_end();
  trace.leave("Net.fc").leave("Net").free("a");
  const KeptTables::Rows blocks = rows(trace, "blocks");
  ASSERT_EQ(blocks.size(), 1U);
  EXPECT_EQ(blocks[0].at("module"), "Net.fc");
  EXPECT_EQ(blocks[0].at("op"), "aten::mm");
  EXPECT_EQ(blocks[0].at("bytes"), std::to_string((4_MiB).raw()));
  EXPECT_EQ(blocks[0].at("requested"), "4000000");
  EXPECT_EQ(blocks[0].at("birth_event"), "3");
  EXPECT_EQ(blocks[0].at("birth_ns"), "4000");
  EXPECT_EQ(blocks[0].at("death_event"), "7");
  EXPECT_EQ(blocks[0].at("death_ns"), "8000");
  EXPECT_EQ(blocks[0].at("category"), "Activation");
}

TEST(ExportBlocks, ABlockThatOutlivesTheRecordingHasNoDeath) {
  const KeptTables::Rows blocks =
      rows(TraceBuilder{}.alloc("a", 1_MiB).alloc("b", 2_MiB), "blocks");
  ASSERT_EQ(blocks.size(), 2U);
  EXPECT_EQ(blocks[0].at("death_event"), "");
  EXPECT_EQ(blocks[0].at("at_peak"), "1");
}

TEST(ExportBlocks, ThoseAtThePeakSumToIt) {
  TraceBuilder trace;
  trace.alloc("a", 4_MiB).alloc("b", 2_MiB).free("a").alloc("c", 1_MiB).free("b").free("c");
  std::int64_t sum = 0;
  for (const auto& block : rows(trace, "blocks")) {
    if (block.at("at_peak") == "1") sum += std::stoll(block.at("bytes"));
  }
  EXPECT_EQ(Bytes(sum), 6_MiB);
}

TEST(ExportBlocks, AResizedBlockHasARowForEachSize) {
  TraceBuilder trace;
  trace.alloc("a", 4_MiB).resize("a", 1_MiB).free("a");
  const KeptTables::Rows blocks = rows(trace, "blocks");
  ASSERT_EQ(blocks.size(), 2U);
  EXPECT_EQ(blocks[0].at("death_event"), blocks[1].at("birth_event"));
  EXPECT_EQ(blocks[1].at("bytes"), std::to_string((1_MiB).raw()));
}

TEST(ExportEvents, EveryKindHasARowWithItsName) {
  TraceBuilder trace;
  trace.alloc("a", 1_MiB).stream_use("a", 7).free("a").free_completed("a").step().marker("here");
  trace.collective("all_gather", "world", 3_MiB).segment_alloc(0x1000, 2_MiB).reserved(2_MiB);
  trace.segment_free(0x1000, 2_MiB).empty_cache().oom(5_MiB).lost(Loss::kUnseenFree, 7);
  std::vector<std::string> kinds;
  const KeptTables::Rows events = rows(trace, "events");
  for (const auto& event : events) kinds.push_back(event.at("kind"));
  const std::vector<std::string> expected{
      "alloc",       "stream_use",    "free",          "free_completed", "step_end",
      "marker",      "collective",    "segment_alloc", "reserved",       "segment_free",
      "empty_cache", "out_of_memory", "lost"};
  EXPECT_EQ(kinds, expected);
  EXPECT_EQ(events[6].at("detail"), "world");
  EXPECT_EQ(events[11].at("detail"), "failed");
}

TEST(ExportTables, TwoRecordingsOfOneRankAreRefused) {
  const std::vector<std::byte> bytes = TraceBuilder{}.alloc("a", 1_MiB).bytes();
  const std::vector<ExportInput> runs{input(bytes, "run.2.peak"), input(bytes, "other.2.peak")};
  const std::vector<std::string> names{"devices"};
  KeptTables kept;
  const auto warnings = export_tables(runs, names, kept);
  ASSERT_FALSE(warnings.ok());
  EXPECT_NE(warnings.status().message().find("other.2.peak is rank 2"), std::string::npos);
}

TEST(ExportTables, RecordingsWithoutARankAreNumberedInOrder) {
  const std::vector<std::byte> bytes = TraceBuilder{}.alloc("a", 1_MiB).bytes();
  const std::vector<ExportInput> runs{input(bytes, "a.peak"), input(bytes, "b.peak")};
  const std::vector<std::string> names{"recordings"};
  KeptTables kept;
  ASSERT_TRUE(export_tables(runs, names, kept).ok());
  ASSERT_EQ(kept.tables["recordings"].size(), 2U);
  EXPECT_EQ(kept.tables["recordings"][1].at("rank"), "1");
}

TEST(ExportTables, ATableThatIsNoneIsNamed) {
  const std::vector<std::string> names{"rows"};
  EXPECT_NE(choose_tables(names).status().message().find("'rows'"), std::string::npos);
  EXPECT_EQ(choose_tables({})->size(), export_schemas().size());
}

TEST(Utf8, BytesThatAreNoCharacterAreReplaced) {
  std::string scratch;
  EXPECT_EQ(valid_utf8("plain", scratch), "plain");
  EXPECT_EQ(valid_utf8("层 ü", scratch), "层 ü");
  EXPECT_EQ(valid_utf8("a\xff"
                       "b",
                       scratch),
            "a\uFFFD"
            "b");
  EXPECT_EQ(valid_utf8("\xc3", scratch), "\uFFFD");
  EXPECT_EQ(valid_utf8("\xed\xa0\x80", scratch), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(valid_utf8("\xf4\x90\x80\x80", scratch), "\uFFFD\uFFFD\uFFFD\uFFFD");
}

}  // namespace
}  // namespace peakline::testing
