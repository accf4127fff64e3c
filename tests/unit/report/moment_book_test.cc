#include "report/moment_book.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

#include "ledger/peak.h"
#include "replayed.h"

namespace peakline {
namespace {

using testing::TraceBuilder;
using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint8_t>;
using Alive = std::map<Key, std::int64_t>;

// A run of many small lives: modules, ops and labels at random.
TraceBuilder random_run(unsigned seed, int events) {
  std::mt19937 random(seed);
  TraceBuilder trace;
  std::vector<std::string> live;
  const std::vector<std::string> modules{"Net", "Net.a", "Net.a.0", "Net.b"};
  for (int i = 0; i < events; ++i) {
    const unsigned dice = random() % 20;
    if (dice == 0) {
      trace.step();
    } else if (dice == 1 && !live.empty()) {
      trace.label(live[random() % live.size()], category::kParameter, modules[random() % 4]);
    } else if (dice == 2 && !live.empty()) {
      trace.resize(live[random() % live.size()], Bytes(static_cast<std::int64_t>(random() % 999)));
    } else if (dice < 12 || live.empty()) {
      const std::string& module = modules[random() % 4];
      live.push_back("b" + std::to_string(i));
      trace.enter(module).op("op" + std::to_string(random() % 3));
      trace.alloc(live.back(), Bytes(static_cast<std::int64_t>(random() % 5000)));
      trace.op_end().leave(module);
    } else {
      std::swap(live[random() % live.size()], live.back());
      trace.free(live.back());
      live.pop_back();
    }
  }
  return trace;
}

std::vector<Moment> moments_of(std::size_t events, std::uint64_t every) {
  std::vector<Moment> moments;
  for (std::uint64_t i = 0; i * every < events; ++i) {
    const std::uint32_t rank = i == 0 ? 64 : static_cast<std::uint32_t>(std::countr_zero(i));
    moments.push_back({i * every, rank});
  }
  if (moments.back().event != events - 1) moments.push_back({events - 1, Moment::kAlways});
  moments.back().rank = Moment::kAlways;
  return moments;
}

DeviceReport book_of(const TraceBuilder& trace, std::vector<Moment> moments, std::size_t most) {
  MomentBook book(DeviceId{}, std::move(moments), most);
  Replay replay(trace.dictionary());
  replay.add(book);
  for (std::uint64_t i = 0; i < trace.events().size(); ++i) {
    book.on_event(i, trace.events()[i].time);
    replay.on(trace.events()[i]);
  }
  replay.finish();
  DeviceReport out;
  book.fill(out, trace.dictionary());
  return out;
}

// The slow way: one replay per moment.
Alive snapshot(const TraceBuilder& trace, std::uint64_t event) {
  SnapshotPass pass(event);
  testing::play(trace, {&pass});
  Alive alive;
  if (pass.held().empty()) return alive;
  for (const Held& held : pass.held()[0]) {
    if (held.bytes == Bytes{}) continue;
    alive[{held.module.raw(), held.op.raw(), held.category.raw()}] += held.bytes.raw();
  }
  return alive;
}

void expect_exact(const TraceBuilder& trace, const DeviceReport& report) {
  Alive alive;
  auto change = report.changes.begin();
  for (std::uint32_t i = 0; i < report.points.size(); ++i) {
    const ReportPoint& point = report.points[i];
    Bytes sum;
    for (const Bytes bytes : point.by_category) sum += bytes;
    EXPECT_EQ(sum, point.allocated);
    EXPECT_LE(point.lowest, point.allocated);
    EXPECT_GE(point.highest, point.allocated);
    EXPECT_EQ(point.time, trace.events()[point.event].time);
    for (; change != report.changes.end() && change->point == i; ++change) {
      EXPECT_TRUE(point.has_alive);
      const AliveKey& key = report.keys[change->key];
      std::int64_t& bytes = alive[{key.module.raw(), key.op.raw(), key.category.raw()}];
      bytes += change->bytes.raw();
      if (bytes == 0) alive.erase({key.module.raw(), key.op.raw(), key.category.raw()});
    }
    if (point.has_alive) {
      EXPECT_EQ(alive, snapshot(trace, point.event)) << point.event;
    }
  }
  EXPECT_EQ(change, report.changes.end());
}

class MomentBookProperty : public ::testing::TestWithParam<unsigned> {};

TEST_P(MomentBookProperty, EveryMomentHoldsWhatASnapshotThereHolds) {
  const TraceBuilder trace = random_run(GetParam(), 400);
  const std::size_t events = trace.events().size();
  expect_exact(trace, book_of(trace, moments_of(events, 1 + GetParam() % 40), 1'000'000));
}

TEST_P(MomentBookProperty, ThinnedOutMomentsStayExactAndBounded) {
  const TraceBuilder trace = random_run(GetParam(), 600);
  const std::size_t events = trace.events().size();
  const DeviceReport report = book_of(trace, moments_of(events, 3), 150);
  EXPECT_LE(report.changes.size(), 150u);
  std::size_t kept = 0;
  for (const ReportPoint& point : report.points) kept += point.has_alive ? 1 : 0;
  EXPECT_LT(kept, report.points.size());
  EXPECT_GT(kept, 1u);
  EXPECT_TRUE(report.points.back().has_alive);
  EXPECT_GE(report.alive_every, 3u);
  expect_exact(trace, report);
}

INSTANTIATE_TEST_SUITE_P(Runs, MomentBookProperty, ::testing::Range(0u, 12u));

TEST(MomentBook, AMomentSeesTheEventItLiesAt) {
  TraceBuilder trace;
  trace.alloc("a", 5_MiB).free("a").alloc("b", 2_MiB);
  const DeviceReport report =
      book_of(trace, {{0, Moment::kAlways}, {1, Moment::kAlways}, {2, Moment::kAlways}}, 100);
  EXPECT_EQ(report.points[0].allocated, 5_MiB);
  EXPECT_EQ(report.points[1].allocated, Bytes{});
  EXPECT_EQ(report.points[2].allocated, 2_MiB);
}

TEST(MomentBook, AShortLifeBetweenMomentsIsInTheHighestOnly) {
  TraceBuilder trace;
  trace.alloc("w", 1_MiB).alloc("spike", 9_MiB).free("spike").alloc("b", 1_MiB);
  const DeviceReport report = book_of(trace, {{0, Moment::kAlways}, {3, Moment::kAlways}}, 100);
  EXPECT_EQ(report.points[1].allocated, 2_MiB);
  EXPECT_EQ(report.points[1].highest, 10_MiB);
  EXPECT_EQ(report.changes.size(), 2u);
}

}  // namespace
}  // namespace peakline
