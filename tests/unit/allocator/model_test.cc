// The simulator beside the naive allocator, step by step.
#include <gtest/gtest.h>

#include <random>

#include "allocator_fixture.h"
#include "naive_allocator.h"

namespace peakline::testing {
namespace {

struct ModelCase {
  const char* name;
  const char* conf;
  TorchVersion torch = {};
};
std::ostream& operator<<(std::ostream& out, const ModelCase& c) { return out << c.name; }

class BesideModel : public ::testing::TestWithParam<std::tuple<ModelCase, int>> {
 protected:
  // Compares everything both can say.
  void compare(const CachingAllocator& fast, const NaiveAllocator& slow, int step) {
    using Piece = NaiveAllocator::Piece;
    using Segment = NaiveAllocator::Segment;
    const AllocatorStats& stats = fast.stats();
    const auto size = [](const Piece& piece) { return piece.size; };
    const auto check = [&](std::int64_t value, std::uint64_t expected, const char* what) {
      ASSERT_EQ(static_cast<std::uint64_t>(value), expected) << what << " at step " << step;
    };
    check(stats.reserved_bytes[0].current, slow.reserved(), "reserved");
    check(stats.allocated_bytes[0].current,
          slow.sum([](const Segment&, const Piece& p) { return p.allocated; }, size), "allocated");
    check(stats.active_bytes[2].current,
          slow.sum([](const Segment& s, const Piece& p) { return !s.small && !p.free(); }, size),
          "active large");
    check(stats.inactive_split_bytes[0].current,
          slow.sum([](const Segment& s, const Piece& p) { return p.free() && !s.whole(); }, size),
          "inactive split");
    check(stats.inactive_split[0].current,
          slow.sum([](const Segment& s, const Piece& p) { return p.free() && !s.whole(); },
                   [](const Piece&) { return std::uint64_t{1}; }),
          "inactive split count");
    check(stats.requested_bytes[0].current,
          slow.sum([](const Segment&, const Piece& p) { return !p.free(); },
                   [](const Piece& piece) { return piece.requested; }),
          "requested");
    check(stats.segment[0].current, slow.segments().size(), "segments");
    check(stats.num_alloc_retries, slow.retries, "retries");
    check(stats.num_ooms, slow.ooms, "ooms");
  }
};

TEST_P(BesideModel, TakesTheSameBlocksForever) {
  const auto& [param, seed] = GetParam();
  const AllocatorConfig config = *AllocatorConfig::parse(param.conf, param.torch);
  const auto fast_device = make_driver_model({.total = 4_GiB, .in_use = {}});
  const auto slow_device = make_driver_model({.total = 4_GiB, .in_use = {}});
  CachingAllocator fast(config, *fast_device);
  NaiveAllocator slow(config, *slow_device);
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  std::vector<std::uint64_t> live;
  std::vector<std::uint64_t> freed;
  for (int step = 0; step < 3000; ++step) {
    const std::uint64_t dice = random() % 100;
    if (dice < 52) {
      const std::uint64_t size = (random() >> (37 + random() % 26)) + 1;
      const auto stream = static_cast<std::uint32_t>(random() % 3);
      const std::uint64_t expected = slow.allocate(size, stream);
      const Allocation got =
          fast.allocate(Bytes(static_cast<std::int64_t>(size)), StreamId(stream));
      ASSERT_EQ(got.address.raw(), expected) << "step " << step;
      if (expected != 0) live.push_back(expected);
    } else if (dice < 90 && !live.empty()) {
      const std::size_t at = random() % live.size();
      ASSERT_TRUE(fast.free(Address(live[at])));
      ASSERT_TRUE(slow.free(live[at]));
      freed.push_back(live[at]);
      live[at] = live.back();
      live.pop_back();
    } else if (dice < 95 && !live.empty()) {
      const std::uint64_t address = live[random() % live.size()];
      const auto stream = static_cast<std::uint32_t>(random() % 3);
      fast.record_stream(Address(address), StreamId(stream));
      slow.record_stream(address, stream);
    } else if (dice < 98 && !freed.empty()) {
      const std::size_t at = random() % freed.size();
      fast.complete_free(Address(freed[at]));
      slow.complete_free(freed[at]);
      freed.erase(freed.begin() + static_cast<std::ptrdiff_t>(at));
    } else if (dice == 98 && random() % 10 == 0) {
      fast.empty_cache();
      slow.empty_cache();
    } else if (dice == 99 && random() % 5 == 0) {
      std::optional<Bytes> limit;
      if (random() % 2 == 0) limit = Bytes(static_cast<std::int64_t>(1 + random() % 4) << 29);
      fast.set_memory_limit(limit);
      slow.set_limit(limit);
    }
    compare(fast, slow, step);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Seeds, BesideModel,
    ::testing::Combine(
        ::testing::Values(
            ModelCase{"plain_2_11", "", {2, 11}}, ModelCase{"plain_2_12", "", {2, 12}},
            ModelCase{"plain_2_13", "", {2, 13}},
            ModelCase{"max_split_2_11", "max_split_size_mb:40", {2, 11}},
            ModelCase{"max_split_2_12", "max_split_size_mb:40", {2, 12}},
            ModelCase{"max_split", "max_split_size_mb:40"},
            ModelCase{"rounding", "max_split_size_mb:30,max_non_split_rounding_mb:90"},
            ModelCase{"roundup", "roundup_power2_divisions:[4:2,32:8,>:4]"},
            ModelCase{"collect", "garbage_collection_threshold:0.4"},
            ModelCase{"segment", "large_segment_size_mb:48"}),
        ::testing::Range(0, 8)),
    [](const auto& test) {
      return std::string(std::get<0>(test.param).name) + "_" +
             std::to_string(std::get<1>(test.param));
    });

}  // namespace
}  // namespace peakline::testing
