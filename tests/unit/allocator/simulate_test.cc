#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include <peakline/simulate.h>

#include "allocator/session.h"
#include "import_support.h"
#include "trace_builder.h"

namespace peakline::testing {
namespace {

SourceOpener opener(const std::string& text) {
  return [&text]() -> Result<std::unique_ptr<Source>> { return source_of(text); };
}

// Three blocks whose gaps are too small for the last one, which only a segment that grows can hold.
std::string fragmented() {
  std::string csv = "action,addr,size,stream\n";
  const std::int64_t mib = 1 << 20;
  const auto row = [&](const char* action, std::int64_t at, std::int64_t size) {
    csv += std::string(action) + "," + std::to_string(at * mib) + "," + std::to_string(size * mib) +
           ",0\n";
  };
  for (int i = 0; i < 4; ++i) row("alloc", 100 + 100 * i, 100);
  for (int i = 0; i < 4; i += 2) {
    row("free_requested", 100 + 100 * i, 100);
    row("free_completed", 100 + 100 * i, 100);
    row("alloc", 100 + 100 * i, 60);
  }
  row("alloc", 1000, 150);
  return csv;
}

TEST(Simulate, SaysWhatIsReservedAndWhy) {
  const std::string csv = fragmented();
  const Result<SimulationResult> result = simulate(opener(csv), {});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->outcome.peak_reserved, 550_MiB);
  EXPECT_EQ(result->outcome.peak_allocated, 470_MiB);
  EXPECT_EQ(result->outcome.at_peak.cached, 80_MiB);
  EXPECT_TRUE(result->outcome.fits);
  EXPECT_FALSE(result->oom.has_value());
  EXPECT_TRUE(result->others.empty());
}

TEST(Simulate, AFailureNamesTheSettingsThatWouldHaveHelped) {
  const std::string csv = fragmented();
  SimulateOptions options;
  options.memory = 500_MiB;
  const Result<SimulationResult> result = simulate(opener(csv), options);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_FALSE(result->outcome.fits);
  ASSERT_TRUE(result->oom.has_value());
  EXPECT_EQ(result->oom->info.requested, 150_MiB);
  EXPECT_EQ(result->oom->use.cached, 80_MiB);
  EXPECT_FALSE(result->oom->only_fragmented) << "80 MiB in one piece would not do";
  EXPECT_NE(result->oom->message.find("Tried to allocate 150.00 MiB. GPU 0 has a total capacity of "
                                      "500.00 MiB of which 100.00 MiB is free"),
            std::string::npos)
      << result->oom->message;
  const auto helps = [&](std::string_view conf) {
    return std::ranges::any_of(result->others, [&](const SettingOutcome& other) {
      return other.conf == conf && other.fits;
    });
  };
  EXPECT_TRUE(helps("expandable_segments:True"));
  EXPECT_FALSE(helps("roundup_power2_divisions:8"));
  EXPECT_TRUE(result->others[0].fits) << "what fits comes first";
}

TEST(Simulate, WhatWasAliveAtTheFailureIsToldByCategoryAndModule) {
  // Labels may come after the failure; they hold for the whole life.
  TraceBuilder trace;
  trace.enter("Net.layer").alloc("weight", 300_MiB).leave("Net.layer");
  trace.alloc("input", 100_MiB).alloc("last", 200_MiB);
  trace.label("weight", category::kParameter);
  const std::vector<std::byte> file = trace.bytes();
  const std::string bytes(reinterpret_cast<const char*>(file.data()), file.size());
  SimulateOptions options;
  options.memory = 500_MiB;
  options.device = "cuda:0";
  const Result<SimulationResult> result = simulate(opener(bytes), options);
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_TRUE(result->oom.has_value());
  EXPECT_EQ(result->oom->info.requested, 200_MiB);
  ASSERT_FALSE(result->oom->by_category.empty());
  EXPECT_EQ(result->oom->by_category[0].name, "Parameter");
  EXPECT_EQ(result->oom->by_category[0].bytes, 300_MiB);
  ASSERT_FALSE(result->oom->by_module.empty());
  EXPECT_EQ(result->oom->by_module[0].name, "Net.layer");
}

TEST(Simulate, WhatTheRecordedRunDidNotGetIsAskedForAgainUnderALimit) {
  TraceBuilder trace;
  trace.enter("Net.layer").alloc("weight", 300_MiB).oom(400_MiB).leave("Net.layer");
  const std::vector<std::byte> file = trace.bytes();
  const std::string bytes(reinterpret_cast<const char*>(file.data()), file.size());
  SimulateOptions options;
  options.device = "cuda:0";
  options.memory = 500_MiB;
  const Result<SimulationResult> result = simulate(opener(bytes), options);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_FALSE(result->outcome.fits);
  ASSERT_TRUE(result->oom.has_value());
  EXPECT_EQ(result->oom->info.requested, 400_MiB);
  EXPECT_EQ(result->oom->module, "Net.layer");
  ASSERT_FALSE(result->oom->by_module.empty());
  EXPECT_EQ(result->oom->by_module[0].bytes, 300_MiB);

  options.memory = 800_MiB;
  const Result<SimulationResult> larger = simulate(opener(bytes), options);
  ASSERT_TRUE(larger.ok());
  EXPECT_TRUE(larger->outcome.fits);
  EXPECT_EQ(larger->outcome.peak_reserved, 700_MiB);
}

TEST(Simulate, ACacheThatIsEmptiedAfterEachStepIsNotCutUp) {
  TraceBuilder trace;  // the small block that stays lies in the cached segment, unless that is gone
  trace.alloc("large", 200_MiB).free("large").step();
  trace.alloc("small", 2_MiB).oom(300_MiB);
  const std::vector<std::byte> file = trace.bytes();
  const std::string bytes(reinterpret_cast<const char*>(file.data()), file.size());
  SimulateOptions options;
  options.device = "cuda:0";
  options.memory = 400_MiB;
  const Result<SimulationResult> as_it_was = simulate(opener(bytes), options);
  ASSERT_TRUE(as_it_was.ok()) << as_it_was.status().message();
  EXPECT_FALSE(as_it_was->outcome.fits);
  options.empty_cache_each_step = true;
  const Result<SimulationResult> emptied = simulate(opener(bytes), options);
  ASSERT_TRUE(emptied.ok()) << emptied.status().message();
  EXPECT_TRUE(emptied->outcome.fits);
}

TEST(Simulate, ComparingRanksWhatFitsAndReservesLeast) {
  const std::string csv = fragmented();
  SimulateOptions options;
  options.compare = true;
  const Result<SimulationResult> result = simulate(opener(csv), options);
  ASSERT_TRUE(result.ok());
  ASSERT_GT(result->others.size(), 5u);
  for (std::size_t i = 1; i < result->others.size(); ++i) {
    EXPECT_LE(result->others[i - 1].peak_reserved, result->others[i].peak_reserved);
  }
}

TEST(Simulate, BadSettingsAreSaidBeforeTheFileIsRead) {
  SimulateOptions options;
  options.conf = "max_split_size_mb:1";
  bool was_opened = false;
  const Result<SimulationResult> result = simulate(
      [&]() -> Result<std::unique_ptr<Source>> {
        was_opened = true;
        return source_of("");
      },
      options);
  EXPECT_FALSE(result.ok());
  EXPECT_FALSE(was_opened);
}

TEST(Simulate, AgreementWithRecordedSegmentsIsCounted) {
  const std::string csv =
      "action,addr,size,stream\n"
      "segment_alloc,2097152,2097152,0\nalloc,2097152,512,0\n"
      "segment_alloc,41943040,20971520,0\nalloc,41943040,5242880,0\n";
  const Result<SimulationResult> result = simulate(opener(csv), {});
  ASSERT_TRUE(result.ok());
  ASSERT_TRUE(result->recorded.has_value());
  EXPECT_TRUE(result->recorded->equal);
  SimulateOptions other;
  other.conf = "large_segment_size_mb:40";
  const Result<SimulationResult> changed = simulate(opener(csv), other);
  EXPECT_FALSE(changed->recorded->equal);
  EXPECT_EQ(changed->recorded->same, 1u);
}

// A recording in which each of five frees waits, or not, while the next block is allocated.
TraceBuilder side_stream(bool waits) {
  TraceBuilder trace;
  trace.device("cuda:0");
  for (int i = 0; i < 5; ++i) {
    const std::string block = "block " + std::to_string(i);
    trace.alloc(block, 30_MiB).free(block);
    if (waits) trace.stream_use(block, kUnknownStream.raw());
  }
  for (int i = 0; i < 5 && waits; ++i) trace.free_completed("block " + std::to_string(i));
  return trace.alloc("last", 30_MiB);
}

Result<SimulationResult> simulated(const TraceBuilder& trace, const SimulateOptions& options = {}) {
  const std::vector<std::byte> bytes = trace.bytes();
  return simulate([&] { return Result<std::unique_ptr<Source>>(make_memory_source(bytes)); },
                  options);
}

TEST(Simulate, ABlockThatIsSaidToWaitAfterItsFreeIsNotReusedBeforeItIsComplete) {
  EXPECT_EQ(simulated(side_stream(false))->outcome.peak_reserved, 30_MiB);
  EXPECT_EQ(simulated(side_stream(true))->outcome.peak_reserved, 150_MiB);
}

TEST(Simulate, WhatIsRememberedOfFreesIsWhatWaits) {
  Session session(AllocatorConfig{}, DriverOptions{}, std::nullopt);
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    session.alloc(BlockId(i), 1_MiB, StreamId{});
    session.free(BlockId(i));
  }
  session.finish();
  EXPECT_EQ(session.waiting(), 0u);
}

TraceBuilder with_settings(const std::string& conf, const std::string& limit = "") {
  TraceBuilder trace;
  trace.info("torch", "2.13.0").info("allocator_conf", conf);
  if (!limit.empty()) trace.info("allocator_limit.cuda:0", limit);
  return trace.device("cuda:0").alloc("a", 3_MiB).alloc("b", 100_MiB);
}

TEST(Simulate, TheRunsOwnSettingsHoldUnlessOthersAreGiven) {
  const auto own = simulated(with_settings("large_segment_size_mb:40", "419430400"));
  EXPECT_EQ(own->outcome.conf, "large_segment_size_mb:40");
  EXPECT_EQ(own->settings_from, SettingsSource::kRecording);
  EXPECT_EQ(own->memory, 400_MiB);
  EXPECT_EQ(own->outcome.peak_reserved, 140_MiB);
  SimulateOptions defaults;
  defaults.conf = "";
  const auto given = simulated(with_settings("large_segment_size_mb:40"), defaults);
  EXPECT_EQ(given->settings_from, SettingsSource::kGiven);
  EXPECT_EQ(given->outcome.peak_reserved, 120_MiB);
  EXPECT_EQ(simulated(side_stream(false))->settings_from, SettingsSource::kDefault);
}

TEST(Simulate, ALimitOfTheRunMakesItFailAsTheRunDid) {
  const auto result = simulated(with_settings("", "104857600"));
  EXPECT_FALSE(result->outcome.fits);
  EXPECT_TRUE(result->oom.has_value());
}

// Two blocks of 40 MiB in pages of 64 MiB: 104 MiB are asked for when the second page is taken.
TraceBuilder pages_of_64(const std::string& key = "") {
  TraceBuilder trace;
  trace.info("torch", "2.13.0");
  trace.info("allocator_conf", "expandable_segments:True,large_segment_size_mb:64");
  if (!key.empty()) trace.info(key, "115343360");  // 110 MiB
  return trace.device("cuda:0").alloc("a", 40_MiB).alloc("b", 40_MiB);
}

TEST(Simulate, MemoryThatIsGivenIsNotExceededByAPageThatIsLargerThanTheRequest) {
  SimulateOptions options;
  options.memory = 110_MiB;
  const auto small = simulated(pages_of_64(), options);
  EXPECT_FALSE(small->outcome.fits);
  EXPECT_EQ(small->outcome.peak_reserved, 64_MiB);
  ASSERT_TRUE(small->oom.has_value());
  options.memory = 128_MiB;
  EXPECT_TRUE(simulated(pages_of_64(), options)->outcome.fits);
}

TEST(Simulate, SoItIsWithTheMemoryThatAVirtualGpuWasGiven) {
  EXPECT_FALSE(simulated(pages_of_64("memory_limit.cuda:0"))->outcome.fits);
}

TEST(Simulate, AFractionThatTheProgramSetIsExceededByThatMuchAsTorchDoes) {
  const auto result = simulated(pages_of_64("allocator_limit.cuda:0"));
  EXPECT_TRUE(result->outcome.fits);
  EXPECT_EQ(result->outcome.peak_reserved, 128_MiB);
}

TEST(Simulate, SettingsThatCannotBeSimulatedAreSaidAndLeftOut) {
  const auto result = simulated(with_settings("backend:cudaMallocAsync"));
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->warnings.size(), 1u);
  EXPECT_NE(result->warnings[0].find("cudaMallocAsync"), std::string::npos);
}

TEST(Simulate, PrivatePoolsOfTheRunAreSaidToBeSimulatedAsOne) {
  TraceBuilder trace = with_settings("");
  trace.info("private_pools", "2");
  const auto result = simulated(trace);
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->warnings.size(), 1u);
  EXPECT_NE(result->warnings[0].find("private pools (2"), std::string::npos);
}

TEST(Simulate, ASettingThatIsOnAlreadyIsNotAdvised) {
  SimulateOptions options;
  options.compare = true;
  const auto result =
      simulated(with_settings("roundup_power2_divisions:4,expandable_segments:True"), options);
  std::set<std::string> seen;
  for (const SettingOutcome& other : result->others) {
    const std::string text = AllocatorConfig::parse(other.conf).value().canonical();
    EXPECT_NE(text, "expandable_segments:True,roundup_power2_divisions:4");
    EXPECT_TRUE(text.empty() || text.find("expandable_segments:True") != std::string::npos)
        << "others are tried beside what is on, not in its place: " << text;
    EXPECT_TRUE(seen.insert(text).second) << text << " is there twice";
  }
  EXPECT_GT(result->others.size(), 3u);
}

TEST(Simulate, JsonHasTheAgreedKeys) {
  const std::string csv = fragmented();
  SimulateOptions options;
  options.memory = 500_MiB;
  const auto json = nlohmann::json::parse(simulation_to_json(*simulate(opener(csv), options)));
  for (const char* key : {"schema_version", "device", "gpu", "torch", "peak_allocated",
                          "peak_reserved", "memory_limit", "fits", "segments", "retries", "ooms",
                          "oom", "settings", "memory_stats", "warnings"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["memory_limit"], 500 << 20);
  EXPECT_EQ(json["fits"], false);
  EXPECT_EQ(json["memory_stats"]["num_ooms"], 1);
}

}  // namespace
}  // namespace peakline::testing
