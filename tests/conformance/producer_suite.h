// What every producer of recordings must keep of the allocator: a recording that is saved, loaded
// and simulated without being told anything gives the run's own segments, reserved bytes, retries
// and settings.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <peakline/simulate.h>
#include <peakline/summary.h>

#include "traced_allocator.h"

namespace peakline::testing {

// A run: how its allocator was set, and which random program it ran.
struct ProducedRun {
  std::string conf;
  std::optional<Bytes> limit;
  std::uint64_t seed = 1;
};

// A recording, and what the run's own allocator says.
struct Produced {
  std::vector<std::byte> recording;
  AllocatorStats stats;
};

// The allocator of a run, under a limit that the program does not change.
class LimitedAllocator : public TracedAllocator {
 public:
  LimitedAllocator(const ProducedRun& run, Listener listener)
      : TracedAllocator(AllocatorConfig::parse(run.conf).value(), {}, std::move(listener)) {
    if (run.limit) TracedAllocator::set_limit(static_cast<std::uint64_t>(run.limit->raw()));
  }
  void set_limit(std::uint64_t) override {}

  // Runs the run's program; frees that wait complete at moments of their own.
  void run(const ProducedRun& run) {
    RandomProgram program(*this, run.seed, 2 * RandomProgram::kGiB, false);
    SplitMix dice(run.seed);
    for (int i = 0; i < 3000; ++i) {
      program.step();
      if (dice.below(4) == 0) complete(dice.below(3));
    }
  }
};

struct Producer {
  std::string name;
  std::function<Produced(const ProducedRun&)> produce;
  bool keeps_conf = true;     // else it is given again
  bool keeps_limit = true;    // likewise
  bool keeps_retries = true;  // else a retry is told as an emptied cache
  bool tells_garbage = true;  // else what is collected may be told as a retry
};
inline std::ostream& operator<<(std::ostream& out, const Producer& producer) {
  return out << producer.name;
}

class ProducerSuite : public ::testing::TestWithParam<Producer> {
 protected:
  static Result<SimulationResult> simulated(const Produced& produced,
                                            const SimulateOptions& options) {
    return simulate(
        [&] {
          return Result<std::unique_ptr<Source>>(make_memory_source(std::span(produced.recording)));
        },
        options);
  }

  // False when the program ran out of memory: a simulation stands still there.
  static bool expect_same(const ProducedRun& run) {
    const Producer& producer = GetParam();
    const Produced produced = producer.produce(run);
    if (produced.stats.num_ooms > 0) return false;
    SimulateOptions options;
    if (!producer.keeps_conf) options.conf = run.conf;
    if (!producer.keeps_limit) options.memory = run.limit;
    const Result<SimulationResult> result = simulated(produced, options);
    EXPECT_TRUE(result.ok()) << result.status().message();
    if (!result.ok()) return false;
    const SettingOutcome& outcome = result->outcome;
    EXPECT_EQ(outcome.peak_reserved.raw(), produced.stats.reserved_bytes[0].peak);
    EXPECT_EQ(outcome.segments, static_cast<std::uint64_t>(produced.stats.num_device_alloc));
    EXPECT_EQ(outcome.device_frees, static_cast<std::uint64_t>(produced.stats.num_device_free));
    EXPECT_TRUE(result->recorded && result->recorded->equal);
    EXPECT_EQ(outcome.conf, run.conf);
    EXPECT_EQ(result->memory, run.limit);
    if (!producer.keeps_retries) return true;
    const auto retries = static_cast<std::uint64_t>(produced.stats.num_alloc_retries);
    EXPECT_EQ(outcome.retries, retries);
    const bool collects = run.conf.find("garbage") != std::string::npos;
    if (collects && !producer.tells_garbage) return true;
    EXPECT_EQ(shown(produced).devices.at(0).retries, retries);
    return true;
  }

  static Summary shown(const Produced& produced) {
    Result<TraceReader> reader =
        TraceReader::open(make_memory_source(std::span(produced.recording)));
    return summarize(*reader).value();
  }
};

TEST_P(ProducerSuite, ASimulationOfTheRecordingIsTheRun) {
  for (const char* conf :
       {"", "expandable_segments:True", "max_split_size_mb:128", "roundup_power2_divisions:8"}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(std::string(conf) + " seed " + std::to_string(seed));
      EXPECT_TRUE(expect_same({conf, std::nullopt, seed}));
    }
  }
}

TEST_P(ProducerSuite, SoItIsUnderALimitThatNeedsRetries) {
  int compared = 0;
  std::vector<std::string> confs{"", "max_split_size_mb:64", "garbage_collection_threshold:0.6"};
  // A limit that is given again is never exceeded, by pages neither; torch's own is, and so was the
  // run's.
  if (GetParam().keeps_limit) confs.emplace_back("expandable_segments:True");
  for (const std::string& conf : confs) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE(conf + " seed " + std::to_string(seed));
      compared += expect_same({conf, 2600_MiB, seed}) ? 1 : 0;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(compared, 0) << "every program ran out of memory";
}

}  // namespace peakline::testing
