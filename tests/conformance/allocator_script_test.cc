// Written programs on a real GPU: private pools of CUDA graphs, blocks too large to split, a full
// device, and which settings torch accepts.
#include <gtest/gtest.h>

#include <unordered_map>

#include "allocator_truth.h"

namespace peakline::testing {
namespace {

using Json = nlohmann::json;

// A stream of its own for captures, as the recorder uses it.
constexpr StreamId kCaptureStream{1};

class Scripted {
 public:
  explicit Scripted(const std::string& name)
      : rows_(read_rows("allocator/script." + name + ".csv.zst")) {
    header_ = Json::parse(rows_.at(0).comment);
    keys_ = header_["keys"].get<std::vector<std::string>>();
    real = changes_of(rows_);
    DriverOptions options;
    options.total = kH200;
    options.in_use = kH200Context;
    device = make_recorded_device(real, options);
    const auto config = AllocatorConfig::parse(header_["conf"].get<std::string>(), kRecordedTorch);
    EXPECT_TRUE(config.ok());
    allocator = std::make_unique<CachingAllocator>(*config, *device);
    allocator->on_segment_change(
        [this](const SegmentChange& change) { simulated.push_back(change); });
  }

  void run() {
    for (at_ = 1; at_ < rows_.size(); ++at_) {
      if (rows_[at_].action.empty()) {
        comment(rows_[at_].comment);
      } else {
        step(rows_[at_]);
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  std::vector<SegmentChange> real;
  std::vector<SegmentChange> simulated;
  std::unique_ptr<DeviceModel> device;
  std::unique_ptr<CachingAllocator> allocator;
  std::size_t checkpoints = 0;
  std::size_t failures = 0;
  std::vector<std::string> messages;

 private:
  void comment(const std::string& text) {
    if (!text.starts_with("stats ")) return;
    ++checkpoints;
    ASSERT_EQ(differences(allocator->stats(), keys_,
                          Json::parse(text.substr(6)).get<std::vector<std::int64_t>>()),
              "")
        << "row " << at_;
  }

  void step(const TruthRow& row) {
    if (row.action == "alloc") {
      const Allocation got = allocator->allocate(Bytes(row.size), StreamId(row.stream));
      ASSERT_EQ(got.address.raw(), row.address) << "row " << at_;
    } else if (row.action == "free_requested") {
      ASSERT_TRUE(allocator->free(Address(row.address))) << "row " << at_;
    } else if (row.action == "oom") {
      ++failures;
      ASSERT_FALSE(allocator->allocate(Bytes(row.size), StreamId(row.stream)).ok())
          << "row " << at_;
      messages.push_back(out_of_memory_message(*allocator->out_of_memory()));
    } else if (row.action == "empty_cache") {
      allocator->empty_cache();
    } else if (row.action == "set_limit") {
      allocator->set_memory_fraction(static_cast<double>(row.size) /
                                     static_cast<double>(kH200.raw()));
    } else if (row.action == "capture_begin") {
      ASSERT_TRUE(allocator->begin_pool(pool_of(row),
                                        [](StreamId stream) { return stream == kCaptureStream; }));
    } else if (row.action == "capture_about_to_end") {
      ASSERT_TRUE(allocator->end_pool(pool_of(row)));
    } else if (row.action == "graph_reset") {
      ASSERT_TRUE(allocator->release_pool(pool_of(row)));
    }
  }

  static PoolId pool_of(const TruthRow& row) {
    return PoolId(static_cast<std::uint32_t>(std::stoul(row.pool.substr(row.pool.find('/') + 1))));
  }

  std::vector<TruthRow> rows_;
  Json header_;
  std::vector<std::string> keys_;
  std::size_t at_ = 0;
};

class RealScript : public ::testing::TestWithParam<const char*> {};

TEST_P(RealScript, HasTheRealAddressesSegmentsAndStatistics) {
  Scripted script(GetParam());
  script.run();
  EXPECT_GT(script.checkpoints, 3u);
  EXPECT_EQ(first_difference(script.simulated, script.real, true), "");
}

INSTANTIATE_TEST_SUITE_P(H200, RealScript,
                         ::testing::Values("graphs", "graphs_expandable", "split_growth",
                                           "split_growth_plain", "device_full",
                                           "device_full_expandable"),
                         [](const auto& test) { return std::string(test.param); });

TEST(RealScript, DeviceEndsAtTheSameByte) {
  Scripted script("device_full");
  script.run();
  EXPECT_EQ(script.failures, 4u);
  EXPECT_EQ(script.device->free(), Bytes(3276800));
}

// pytorch#193400: with expandable segments a free block above max_split_size_mb is useless for
// smaller requests, because the search for a free block still refuses it although it may be split.
// Unless it lies right before the segment's end, where growing finds it again, new memory is
// mapped.
TEST(SplitLimit, WithExpandableSegmentsAFreeBlockAboveItIsNotReused) {
  const auto reserved = [](const char* conf, bool at_the_end) {
    const auto device = make_driver_model({.total = kH200, .in_use = {}});
    CachingAllocator allocator(*AllocatorConfig::parse(conf, kRecordedTorch), *device);
    const Address large = allocator.allocate(550_MiB).address;
    if (!at_the_end) allocator.allocate(30_MiB);
    allocator.free(large);
    for (int i = 0; i < 5; ++i) allocator.allocate(110_MiB);
    return Bytes(allocator.stats().reserved_bytes[0].peak);
  };
  constexpr const char* kPlain = "expandable_segments:True";
  constexpr const char* kLimited = "expandable_segments:True,max_split_size_mb:128";
  EXPECT_EQ(reserved(kPlain, false), 580_MiB);
  EXPECT_EQ(reserved(kLimited, false), 1140_MiB);
  EXPECT_EQ(reserved(kLimited, true), reserved(kPlain, true));
}

TEST(RealSettings, AreAcceptedAndRefusedAsTorchDoes) {
  std::size_t compared = 0;
  for (const TruthRow& row : read_rows("allocator/script.settings.csv.zst")) {
    if (!row.comment.starts_with("setting ")) continue;
    const Json setting = Json::parse(row.comment.substr(8));
    const auto text = setting[0].get<std::string>();
    const bool accepted = setting[1] == "ok";
    const Result<AllocatorConfig> config = AllocatorConfig::parse(text, kRecordedTorch);
    ++compared;
    if (text == "max_split_size_mb:-1") {
      // torch reads this as a huge number; here it is an error, like every size below zero.
      EXPECT_FALSE(config.ok());
      continue;
    }
    EXPECT_EQ(config.ok(), accepted) << text << ": " << setting[1];
  }
  EXPECT_GT(compared, 45u);
}

}  // namespace
}  // namespace peakline::testing
