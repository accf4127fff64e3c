#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <peakline/summary.h>

#include "trace_builder.h"

namespace peakline {
namespace {

using testing::TraceBuilder;

Summary summary_of(const TraceBuilder& trace, const SummaryOptions& options = {}) {
  const std::vector<std::byte> bytes = trace.bytes();
  Result<TraceReader> reader = TraceReader::open(make_memory_source(bytes));
  EXPECT_TRUE(reader.ok()) << reader.status().message();
  Result<Summary> summary = summarize(*reader, options);
  EXPECT_TRUE(summary.ok()) << summary.status().message();
  return std::move(summary).value();
}

// Two layers with weights; forward, backward, optimizer, twice.
TraceBuilder training() {
  TraceBuilder trace;
  trace.info("torch", "2.13.0").device("cuda:0", 24_GiB, "NVIDIA H200").segment_alloc(1, 64_MiB);
  for (const char* layer : {"Net.a", "Net.b"}) {
    const std::string weight = std::string(layer) + ".w";
    trace.alloc(weight, 4_MiB).label(weight, category::kParameter, layer, "weight");
  }
  for (int i = 0; i < 2; ++i) {
    trace.enter("Net").enter("Net.a").op("aten::mm").alloc("x", 8_MiB).op_end().leave("Net.a");
    trace.enter("Net.b").op("aten::mm").alloc("y", 2_MiB).op_end().leave("Net.b").leave("Net");
    trace.phase_begin(Phase::kBackward).free("y").op("aten::sum").alloc("g", 1_MiB).op_end();
    trace.free("x").free("g").phase_end(Phase::kBackward).step();
  }
  return trace;
}

Bytes bytes_of(const std::vector<NamedBytes>& rows, std::string_view name) {
  for (const NamedBytes& row : rows) {
    if (row.name == name) return row.bytes;
  }
  return {};
}

TEST(Summary, CategoriesAddUpToThePeak) {
  const Summary summary = summary_of(training());
  const DeviceSummary& gpu = *summary.main_device();
  EXPECT_EQ(gpu.peak_allocated, 18_MiB);
  EXPECT_EQ(bytes_of(gpu.by_category, "Parameter"), 8_MiB);
  EXPECT_EQ(bytes_of(gpu.by_category, "Activation"), 10_MiB);
  EXPECT_EQ(gpu.by_category.size(), 2u);
  EXPECT_EQ(gpu.by_category[0].name, "Activation") << "largest first";
}

TEST(Summary, AnEstimateTellsHowSureItsPeakIs) {
  TraceBuilder trace;
  trace.info("producer", "virtual").device("cuda:0", 24_GiB, "NVIDIA H200");
  trace.alloc("early", 1_MiB).sure("early", Certainty::kGuessed).free("early");
  trace.alloc("a", 8_MiB).alloc("b", 4_MiB).sure("b", Certainty::kModelled);
  trace.alloc("c", 2_MiB).sure("c", Certainty::kOutputsOnly).free("b");
  const Summary summary = summary_of(trace);
  const auto json = nlohmann::json::parse(summary_to_json(summary));
  const nlohmann::json expected = {{"exact", (8_MiB).raw()},
                                   {"modelled", (4_MiB).raw()},
                                   {"guessed", 0},
                                   {"outputs_only", (2_MiB).raw()}};
  EXPECT_EQ(json.at("confidence"), expected);
}

TEST(Summary, ARealRunHasNoConfidenceToTell) {
  const auto json = nlohmann::json::parse(summary_to_json(summary_of(training())));
  EXPECT_FALSE(json.contains("confidence"));
}

TEST(Summary, ADeviceWhoseFirstAllocationWasTooBigIsWhatTheRunIsAbout) {
  TraceBuilder trace;
  trace.device("cpu").alloc("x", 1_MiB);
  trace.device("cuda:0", 24_GiB, "NVIDIA H200").oom(48_GiB);
  const Summary summary = summary_of(trace);
  ASSERT_NE(summary.main_device(), nullptr);
  EXPECT_EQ(summary.main_device()->name, "cuda:0");
  EXPECT_EQ(summary.main_device()->fits, false);
  EXPECT_EQ(summary.main_device()->peak_allocated, 0_B);
}

TEST(Summary, ModulesIncludeWhatLiesBelowThem) {
  const Summary summary = summary_of(training());
  const std::vector<ModuleRow>& rows = summary.main_device()->modules;
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].path, "Net");
  EXPECT_EQ(rows[0].peak, 18_MiB);
  EXPECT_EQ(rows[0].own, 0_B);
  EXPECT_EQ(rows[1].path, "Net.a");
  EXPECT_EQ(rows[1].peak, 12_MiB);
  EXPECT_EQ(rows[1].depth, 1u);
  EXPECT_EQ(rows[1].forward_calls, 2u);
  for (const ModuleRow& row : rows) {
    Bytes sum;
    for (const NamedBytes& part : row.by_category) sum += part.bytes;
    EXPECT_EQ(sum, row.peak) << row.path;
  }
}

TEST(Summary, OpsAreRankedByWhatTheyHoldAtThePeak) {
  const Summary summary = summary_of(training());
  const std::vector<OpRow>& ops = summary.main_device()->ops;
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_EQ(ops[0].name, "aten::mm");
  EXPECT_EQ(ops[0].at_peak, 10_MiB);
  EXPECT_EQ(ops[0].allocated, 20_MiB);
  EXPECT_EQ(ops[0].calls, 4u);
  EXPECT_EQ(ops[0].largest, 8_MiB);
  EXPECT_EQ(ops[1].at_peak, 0_B);
}

TEST(Summary, StepsAndReservedAreKnown) {
  const Summary summary = summary_of(training());
  EXPECT_EQ(summary.steps_completed, 2u);
  ASSERT_EQ(summary.main_device()->steps.size(), 2u);
  EXPECT_EQ(summary.main_device()->steps[1].peak_allocated, 18_MiB);
  EXPECT_EQ(summary.main_device()->peak_reserved, 64_MiB);
  EXPECT_EQ(summary.main_device()->segments, 1u);
}

TEST(Summary, ReservedIsNotInventedWhenNobodySawIt) {
  const Summary summary = summary_of(TraceBuilder{}.alloc("a", 1_MiB));
  EXPECT_FALSE(summary.main_device()->peak_reserved.has_value());
  EXPECT_FALSE(summary.main_device()->fits.has_value());
}

TEST(Summary, AnAcceleratorIsTheMainDeviceEvenWhenTheHostHoldsMore) {
  TraceBuilder trace;
  trace.device("cpu").alloc("a", 9_MiB).device("cuda:1").alloc("b", 1_MiB);
  const Summary summary = summary_of(trace);
  EXPECT_EQ(summary.main_device()->name, "cuda:1");
  EXPECT_EQ(summary.host_peak, 9_MiB);
}

TEST(Summary, FitsUntilAnOutOfMemoryIsRecorded) {
  TraceBuilder fits;
  fits.info("memory_limit.cuda:0", "25769803776").alloc("a", 1_MiB);
  fits.oom(1_MiB, OutOfMemory::Kind::kRetry);
  EXPECT_EQ(summary_of(fits).main_device()->fits, true);
  EXPECT_EQ(summary_of(fits.oom(1_MiB)).main_device()->fits, false);
}

TEST(Summary, TimelineHasAtMostTheAskedPoints) {
  TraceBuilder trace;
  for (int i = 0; i < 300; ++i) trace.alloc(std::to_string(i), 1_KiB);
  const Summary summary = summary_of(trace, {.timeline_points = 100});
  const TimelineView& view = summary.main_device()->timeline;
  EXPECT_EQ(view.points.size(), 75u);
  EXPECT_EQ(view.events_per_point, 4u);
  EXPECT_EQ(view.points.back().highest, 300_KiB);
}

TraceBuilder leaking(int steps) {
  TraceBuilder trace;
  for (int i = 0; i < steps; ++i)
    trace.at("a.py:7 main").alloc("b" + std::to_string(i), 1_MiB).step();
  return trace;
}

TEST(Summary, WhoHoldsWhatGrowsIsOfTheRunsFacts) {
  TraceBuilder trace = leaking(5);
  trace.info("held_by.cuda:0.a.py:7", "main(): losses[…]");
  const Summary summary = summary_of(trace);
  ASSERT_EQ(summary.devices[0].growth.size(), 1u);
  EXPECT_EQ(summary.devices[0].growth[0].holder, "main(): losses[…]");
  ASSERT_EQ(summary.warnings.size(), 1u);
  EXPECT_NE(summary.warnings[0].find(", held by main(): losses[…]"), std::string::npos)
      << summary.warnings[0];
  const auto json = nlohmann::json::parse(summary_to_json(summary));
  EXPECT_EQ(json["growth"][0]["holder"], "main(): losses[…]");
}

TEST(Summary, WithoutThatFactNobodyIsNamed) {
  const Summary summary = summary_of(leaking(5));
  EXPECT_EQ(summary.devices[0].growth[0].holder, "");
  EXPECT_EQ(summary.warnings[0].find("held by"), std::string::npos) << summary.warnings[0];
  EXPECT_TRUE(nlohmann::json::parse(summary_to_json(summary))["growth"][0]["holder"].is_null());
}

TEST(GrowthSoFar, IsTheSummarysAndNothingElse) {
  const std::vector<std::byte> bytes = leaking(5).bytes();
  Result<TraceReader> reader = TraceReader::open(make_memory_source(bytes));
  ASSERT_TRUE(reader.ok());
  const Result<GrowthSoFar> found = growth_so_far(*reader);
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->devices.size(), 1u);
  EXPECT_EQ(found->devices[0].device, "cuda:0");
  ASSERT_EQ(found->devices[0].rows.size(), 1u);
  EXPECT_EQ(found->devices[0].rows[0].kept, 4_MiB);
  EXPECT_EQ(found->devices[0].rows[0].key, "held_by.cuda:0.a.py:7");
  EXPECT_EQ(found->devices[0].rows[0].examples.size(), 5u);
  EXPECT_FALSE(found->suspects);
}

TEST(SummaryJson, HasTheAgreedKeys) {
  const auto json = nlohmann::json::parse(summary_to_json(summary_of(training())));
  EXPECT_EQ(json["schema_version"], 1);
  EXPECT_EQ(json["device"], "cuda:0");
  EXPECT_EQ(json["gpu"], "NVIDIA H200");
  EXPECT_EQ(json["torch"], "2.13.0");
  EXPECT_EQ(json["peak_allocated"], 18 << 20);
  EXPECT_EQ(json["peak_reserved"], 64 << 20);
  EXPECT_TRUE(json["memory_limit"].is_null());
  EXPECT_TRUE(json["fits"].is_null());
  for (const char* key : {"host_peak", "segments", "retries", "ooms", "unknown_values"}) {
    EXPECT_TRUE(json[key].is_number_integer()) << key;
  }
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : json["by_category"].items()) sum += bytes.get<std::int64_t>();
  EXPECT_EQ(sum, json["peak_allocated"]);
  EXPECT_EQ(json["modules"][0]["path"], "Net");
  EXPECT_EQ(json["steps"].size(), 2u);
  EXPECT_TRUE(json["warnings"].is_array());
}

TEST(SummaryJson, OfAnEmptyRecordingIsStillOneObject) {
  const auto json = nlohmann::json::parse(summary_to_json(summary_of(TraceBuilder{})));
  EXPECT_EQ(json["peak_allocated"], 0);
  EXPECT_TRUE(json["modules"].empty());
}

TEST(SummaryJson, BytesThatAreNotUtf8DoNotStopIt) {
  const std::string json =
      summary_to_json(summary_of(TraceBuilder{}.enter("N\xff\xfe").alloc("a", 1_B)));
  EXPECT_TRUE(nlohmann::json::accept(json));
}

TEST(SummaryCsv, QuotesWhatWouldBreakALine) {
  const Summary summary = summary_of(TraceBuilder{}.op("a,\"b\"\n").alloc("x", 1_B).op_end());
  EXPECT_EQ(*summary_to_csv(summary, "ops"),
            "device,op,calls,allocations,at_peak,allocated,largest\n"
            "cuda:0,\"a,\"\"b\"\"\n\",1,1,1,1,1\n");
}

TEST(SummaryCsv, HasEveryTableAndRefusesOthers) {
  const Summary summary = summary_of(training());
  for (const char* table : {"categories", "modules", "ops", "steps", "timeline"}) {
    ASSERT_TRUE(summary_to_csv(summary, table).ok()) << table;
  }
  EXPECT_FALSE(summary_to_csv(summary, "chairs").ok());
}

}  // namespace
}  // namespace peakline
