// Real training runs, replayed: the simulator takes the segments that the real allocator took.
#include <gtest/gtest.h>

#include <unordered_map>

#include "allocator_truth.h"

namespace peakline::testing {
namespace {

struct TraceCase {
  const char* name;
  const char* conf;
  double fraction = 1.0;
};

std::ostream& operator<<(std::ostream& out, const TraceCase& c) { return out << c.name; }

// Drives an allocator with the requests of a trace and remembers what it did.
class Replayed {
 public:
  Replayed(const TraceCase& trace, bool real_addresses) : rows_(read_rows(file_of(trace))) {
    real = changes_of(rows_);
    DriverOptions options;
    options.total = kH200;
    options.in_use = kH200Context;
    device_ = real_addresses ? make_recorded_device(real, options) : make_driver_model(options);
    const auto config = AllocatorConfig::parse(trace.conf, kRecordedTorch);
    EXPECT_TRUE(config.ok()) << config.status().message();
    allocator = std::make_unique<CachingAllocator>(*config, *device_);
    allocator->set_memory_fraction(trace.fraction);
    allocator->set_stream_order(stream_order_of(real));
    allocator->on_segment_change(
        [this](const SegmentChange& change) { simulated.push_back(change); });
    for (std::size_t i = 0; i < rows_.size(); ++i) step(i);
  }

  std::vector<SegmentChange> real;
  std::vector<SegmentChange> simulated;
  std::unique_ptr<CachingAllocator> allocator;
  std::size_t allocations = 0;
  std::size_t same_addresses = 0;

 private:
  static std::string file_of(const TraceCase& trace) {
    return fmt::format("allocator/trace.{}.csv.zst", trace.name);
  }

  void step(std::size_t i) {
    const TruthRow& row = rows_[i];
    if (row.action == "alloc") {
      const Allocation allocation = allocator->allocate(Bytes(row.size), StreamId(row.stream));
      ASSERT_TRUE(allocation.ok()) << "row " << i;
      live_[row.address] = allocation.address;
      ++allocations;
      same_addresses += allocation.address.raw() == row.address ? 1 : 0;
    } else if (row.action == "free_requested") {
      // A free that is not completed at once waits for a stream that the trace does not name.
      const bool at_once = i + 1 < rows_.size() && rows_[i + 1].action == "free_completed" &&
                           rows_[i + 1].address == row.address;
      if (!at_once) allocator->record_stream(live_.at(row.address), StreamId(1000));
      ASSERT_TRUE(allocator->free(live_.at(row.address))) << "row " << i;
    } else if (row.action == "free_completed") {
      allocator->complete_free(live_.at(row.address));
    } else if (row.action == "empty_cache") {
      allocator->empty_cache();
    }
  }

  std::vector<TruthRow> rows_;
  std::unique_ptr<DeviceModel> device_;
  std::unordered_map<std::uint64_t, Address> live_;
};

class RealTrace : public ::testing::TestWithParam<TraceCase> {};

TEST_P(RealTrace, TakesTheSameSegmentsAtTheSameAddresses) {
  const Replayed run(GetParam(), true);
  EXPECT_EQ(first_difference(run.simulated, run.real, true), "");
  EXPECT_EQ(run.allocator->stats().reserved_bytes[0].peak, peak_reserved_of(run.real));
  EXPECT_EQ(run.same_addresses, run.allocations);
}

TEST_P(RealTrace, TakesTheSameSegmentsWithThePlacementModelInsteadOfTheDriver) {
  const Replayed run(GetParam(), false);
  EXPECT_EQ(first_difference(run.simulated, run.real, false), "");
  EXPECT_EQ(run.allocator->stats().reserved_bytes[0].peak, peak_reserved_of(run.real));
}

INSTANTIATE_TEST_SUITE_P(
    H200, RealTrace,
    ::testing::Values(TraceCase{"gpt2_fp32", ""}, TraceCase{"llama1b_ac", ""},
                      TraceCase{"unet", ""}, TraceCase{"fsdp8_llama160m", ""},
                      TraceCase{"random_streams", ""},
                      TraceCase{"gpt2_fp32.expandable_segments", "expandable_segments:True"},
                      TraceCase{"unet.expandable_segments", "expandable_segments:True"},
                      TraceCase{"fsdp8_llama160m.expandable_segments", "expandable_segments:True"},
                      TraceCase{"random_streams.expandable_segments", "expandable_segments:True"},
                      TraceCase{"unet.max_split_size_mb", "max_split_size_mb:128"},
                      TraceCase{"fsdp8_llama160m.max_split_size_mb", "max_split_size_mb:64"},
                      TraceCase{"gpt2_fp32.roundup_power2_divisions", "roundup_power2_divisions:4"},
                      TraceCase{"llama1b_ac.garbage_collection_threshold",
                                "garbage_collection_threshold:0.6", 0.25}),
    [](const auto& test) {
      std::string name = test.param.name;
      std::ranges::replace(name, '.', '_');
      return name;
    });

TEST(RealTraceStats, AllStatisticsAreTheRealOnesAtTheEnd) {
  std::size_t compared = 0;
  for (const std::string& line : lines_of(read_file(data_path("allocator/streams.jsonl")))) {
    const nlohmann::json truth = nlohmann::json::parse(line);
    const auto name = truth["name"].get<std::string>();
    const auto conf = truth["conf"].get<std::string>();
    const Replayed run({name.c_str(), conf.c_str()}, true);
    std::vector<std::string> keys;
    std::vector<std::int64_t> values;
    for (const auto& [key, value] : truth["stats"].items()) {
      keys.push_back(key);
      values.push_back(value.get<std::int64_t>());
    }
    EXPECT_GT(keys.size(), 100u);
    EXPECT_EQ(differences(run.allocator->stats(), keys, values), "") << name;
    ++compared;
  }
  EXPECT_EQ(compared, 5u);
}

}  // namespace
}  // namespace peakline::testing
