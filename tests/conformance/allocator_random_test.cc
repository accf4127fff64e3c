// Random programs that ran on a real GPU, run again on the simulator: same segments, same
// addresses, and the same memory_stats() at every checkpoint.
#include <gtest/gtest.h>

#include <unordered_map>
#include <unordered_set>

#include "allocator_truth.h"
#include "random_program.h"

namespace peakline::testing {
namespace {

using Json = nlohmann::json;

struct RandomCase {
  const char* name;
  std::uint64_t seed;
  std::uint64_t cap_gib;
  bool limited;
  std::uint64_t operations;
};

std::ostream& operator<<(std::ostream& out, const RandomCase& c) { return out << c.name; }

// The simulator as a program's subject. Which blocks of other streams became free before which
// allocation is the GPU's doing, so it comes from the recording.
class SimulatedSubject final : public ProgramSubject {
 public:
  struct Completion {
    std::uint64_t allocation;
    std::uint64_t handle;
  };

  SimulatedSubject(CachingAllocator& allocator, std::vector<Completion> completions)
      : allocator_(allocator), completions_(std::move(completions)) {}

  bool allocate(std::uint64_t handle, std::uint64_t size, std::uint32_t stream) override {
    complete();
    const Allocation allocation =
        allocator_.allocate(Bytes(static_cast<std::int64_t>(size)), StreamId(stream));
    ++allocations;
    if (!allocation.ok()) return false;
    addresses_[handle] = allocation.address;
    hash = (hash ^ allocation.address.raw()) * 0x100000001B3ull;
    return true;
  }
  void free(std::uint64_t handle, bool waits) override {
    if (waits) waiting_.insert(handle);
    allocator_.free(addresses_.at(handle));
  }
  void record_stream(std::uint64_t handle, std::uint32_t stream) override {
    allocator_.record_stream(addresses_.at(handle), StreamId(stream));
  }
  void empty_cache() override {
    complete();
    allocator_.empty_cache();
  }
  void set_limit(std::uint64_t bytes) override {
    allocator_.set_memory_fraction(
        bytes != 0 ? static_cast<double>(bytes) / static_cast<double>(kH200.raw()) : 1.0);
  }
  void reset_peaks() override { allocator_.reset_peak_stats(); }

  std::uint64_t allocations = 0;
  std::uint64_t hash = 0xCBF29CE484222325ull;

 private:
  // Frees that the recording saw completed by now. One that is not even requested yet belongs to a
  // later moment; one that the simulator completed itself, in a retry, is only ticked off.
  void complete() {
    while (next_ < completions_.size() && completions_[next_].allocation <= allocations) {
      const std::uint64_t handle = completions_[next_].handle;
      if (waiting_.erase(handle) == 0) break;
      allocator_.complete_free(addresses_.at(handle));
      ++next_;
    }
  }

  CachingAllocator& allocator_;
  std::vector<Completion> completions_;
  std::size_t next_ = 0;
  std::unordered_map<std::uint64_t, Address> addresses_;
  std::unordered_set<std::uint64_t> waiting_;
};

// A recording: its header, then checkpoints.
struct RandomTruth {
  explicit RandomTruth(const std::string& name) {
    for (const std::string& line : lines_of(read_zst("allocator/random." + name + ".jsonl.zst"))) {
      Json record = Json::parse(line);
      if (record["kind"] == "header")
        header = std::move(record);
      else if (record["kind"] == "oom")
        failures.push_back(std::move(record));
      else
        checkpoints.push_back(std::move(record));
    }
    for (const Json& checkpoint : checkpoints) {
      for (const Json& s : checkpoint["segments"]) {
        changes.push_back({static_cast<SegmentChange::Kind>(s[1].get<int>()),
                           Address(s[2].get<std::uint64_t>()), Bytes(s[3].get<std::int64_t>()),
                           StreamId(s[4].get<std::uint32_t>()), PoolId{}});
      }
      for (const Json& c : checkpoint["completions"]) {
        completions.push_back({c[0].get<std::uint64_t>(), c[1].get<std::uint64_t>()});
      }
    }
  }

  Json header;
  std::vector<Json> checkpoints;
  std::vector<Json> failures;
  std::vector<SegmentChange> changes;
  std::vector<SimulatedSubject::Completion> completions;
};

class RealRandomProgram : public ::testing::TestWithParam<RandomCase> {};

TEST_P(RealRandomProgram, HasTheRealStatisticsAtEveryCheckpoint) {
  const RandomCase& param = GetParam();
  const RandomTruth truth(param.name);
  DriverOptions options;
  options.total = kH200;
  options.in_use = kH200Context;
  const auto device = make_recorded_device(truth.changes, options);
  const auto config =
      AllocatorConfig::parse(truth.header["conf"].get<std::string>(), kRecordedTorch);
  ASSERT_TRUE(config.ok()) << config.status().message();
  CachingAllocator allocator(*config, *device);
  std::vector<SegmentChange> simulated;
  allocator.on_segment_change([&](const SegmentChange& change) { simulated.push_back(change); });
  SimulatedSubject subject(allocator, truth.completions);
  RandomProgram program(subject, param.seed, param.cap_gib << 30, param.limited);
  const auto keys = truth.header["keys"].get<std::vector<std::string>>();
  std::uint64_t operation = 0;
  for (const Json& checkpoint : truth.checkpoints) {
    for (; operation < checkpoint["op"].get<std::uint64_t>(); ++operation) program.step();
    ASSERT_EQ(
        differences(allocator.stats(), keys, checkpoint["stats"].get<std::vector<std::int64_t>>()),
        "")
        << "after operation " << operation;
    ASSERT_EQ(subject.allocations, checkpoint["allocs"].get<std::uint64_t>());
    ASSERT_EQ(fmt::format("{:016x}", subject.hash), checkpoint["hash"].get<std::string>())
        << "after operation " << operation;
  }
  EXPECT_EQ(operation, param.operations);
  EXPECT_EQ(first_difference(simulated, truth.changes, true), "");
}

INSTANTIATE_TEST_SUITE_P(H200, RealRandomProgram,
                         ::testing::Values(RandomCase{"default", 1, 8, false, 1'000'000},
                                           RandomCase{"expandable", 2, 6, true, 100'000},
                                           RandomCase{"max_split", 3, 8, true, 100'000},
                                           RandomCase{"collect", 4, 6, true, 100'000},
                                           RandomCase{"roundup", 5, 8, false, 50'000},
                                           RandomCase{"roundup_list", 6, 8, false, 50'000},
                                           RandomCase{"non_split_rounding", 7, 8, true, 50'000},
                                           RandomCase{"expandable_max_split", 8, 6, true, 50'000},
                                           RandomCase{"large_segment", 9, 8, false, 30'000},
                                           RandomCase{"expandable_large_segment", 10, 6, true,
                                                      30'000}),
                         [](const auto& test) { return std::string(test.param.name); });

// The message names the numbers of the recorded moment; what the process uses besides the allocator
// comes from the driver there and differs by its own pages.
TEST(RealFailure, MessageIsTorchsOwnButForTheDriversPages) {
  const RandomTruth truth("default");
  ASSERT_FALSE(truth.failures.empty());
  const auto keys = truth.header["keys"].get<std::vector<std::string>>();
  const auto cut = [](std::string text) {
    const std::size_t begin = text.find("Including");
    return text.erase(begin, text.find("in use. ") - begin);
  };
  for (const Json& failure : truth.failures) {
    const auto value = [&](const std::string& key) {
      const auto at = std::ranges::find(keys, key) - keys.begin();
      return Bytes(failure["stats"][static_cast<std::size_t>(at)].get<std::int64_t>());
    };
    const auto text = failure["text"].get<std::string>();
    OutOfMemoryInfo info;
    info.segment = Bytes(static_cast<std::int64_t>(
        AllocatorConfig{}.segment_size(AllocatorConfig{}.round_size(failure["bytes"]))));
    info.device_total = kH200;
    info.device_free = Bytes(failure["free"].get<std::int64_t>());
    info.allocated = value("allocated_bytes.all.current");
    info.reserved = value("reserved_bytes.all.current");
    const std::size_t allowed = text.find(" GiB allowed");
    ASSERT_NE(allowed, std::string::npos);
    info.limit = Bytes(static_cast<std::int64_t>(text[allowed - 4] - '0') << 30);
    EXPECT_EQ(cut(out_of_memory_message(info)), cut(text));
  }
}

}  // namespace
}  // namespace peakline::testing
