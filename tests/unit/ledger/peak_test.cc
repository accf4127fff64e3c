#include "ledger/peak.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "replayed.h"

namespace peakline {
namespace {

using testing::held_in;
using testing::total;
using testing::TraceBuilder;

TEST(Peak, BytesFreedBeforeThePeakAreNotInIt) {
  PeakPass peak;
  testing::play(TraceBuilder{}.alloc("a", 4_MiB).free("a").alloc("b", 8_MiB), {&peak});
  EXPECT_EQ(peak.peaks()[0].bytes, 8_MiB);
  EXPECT_EQ(total(peak.peaks()[0].held), 8_MiB);
}

TEST(Peak, BytesFreedAfterThePeakAreInIt) {
  PeakPass peak;
  testing::play(TraceBuilder{}.alloc("a", 4_MiB).alloc("b", 8_MiB).free("a").alloc("c", 2_MiB),
                {&peak});
  EXPECT_EQ(peak.peaks()[0].bytes, 12_MiB);
  EXPECT_EQ(peak.peaks()[0].held.size(), 2u);
}

TEST(Peak, TheFirstOfTwoEqualMomentsIsThePeak) {
  PeakPass peak;
  testing::play(TraceBuilder{}
                    .op("first")
                    .alloc("a", 4_MiB)
                    .op_end()
                    .free("a")
                    .op("second")
                    .alloc("b", 4_MiB),
                {&peak});
  EXPECT_EQ(peak.peaks()[0].place.event, 1u);
}

TEST(Peak, SaysWhereInTheProgramItWas) {
  PeakPass peak;
  TraceBuilder trace;
  trace.alloc("a", 1_MiB)
      .step()
      .enter("Net")
      .op("aten::mm")
      .alloc("b", 1_MiB)
      .op_end()
      .leave("Net");
  testing::play(trace, {&peak});
  const Place& place = peak.peaks()[0].place;
  EXPECT_EQ(place.step, 1u);
  EXPECT_EQ(trace.dictionary().op(place.op), "aten::mm");
  EXPECT_EQ(trace.dictionary().module(place.module).path, "Net");
  EXPECT_EQ(place.time, TimeNs(5000));
}

TEST(Peak, DevicesHavePeaksOfTheirOwn) {
  PeakPass peak;
  TraceBuilder trace;
  trace.device("cuda:0")
      .alloc("a", 4_MiB)
      .device("cpu")
      .alloc("b", 1_MiB)
      .device("cuda:0")
      .free("a");
  trace.device("cpu").alloc("c", 2_MiB);
  testing::play(trace, {&peak});
  EXPECT_EQ(peak.peaks()[0].bytes, 4_MiB);
  EXPECT_EQ(peak.peaks()[1].bytes, 3_MiB);
  EXPECT_EQ(total(peak.peaks()[1].held), 3_MiB);
}

TEST(Peak, ABlockResizedAfterThePeakCountsWithItsSizeThen) {
  PeakPass peak;
  TraceBuilder trace;
  trace.alloc("a", 8_MiB).label("a", category::kUnshardedParameter).alloc("b", 1_MiB);
  testing::play(trace.resize("a", 0_B).resize("a", 2_MiB), {&peak});
  EXPECT_EQ(peak.peaks()[0].bytes, 9_MiB);
  EXPECT_EQ(held_in(peak.peaks()[0].held, category::kUnshardedParameter), 8_MiB);
}

TEST(Peak, GrowingABlockCanBeThePeak) {
  PeakPass peak;
  testing::play(TraceBuilder{}.alloc("a", 1_MiB).resize("a", 9_MiB).free("a"), {&peak});
  EXPECT_EQ(peak.peaks()[0].bytes, 9_MiB);
  EXPECT_EQ(total(peak.peaks()[0].held), 9_MiB);
}

TEST(Snapshot, HoldsWhatWasAliveAfterTheEvent) {
  TraceBuilder trace;
  trace.alloc("a", 1_MiB).alloc("b", 2_MiB).free("a").alloc("c", 4_MiB).free("b");
  const std::vector<Bytes> expected{1_MiB, 3_MiB, 2_MiB, 6_MiB, 4_MiB};
  for (std::uint64_t event = 0; event < expected.size(); ++event) {
    SnapshotPass snapshot(event);
    testing::play(trace, {&snapshot});
    EXPECT_EQ(total(snapshot.held().at(0)), expected[event]) << event;
  }
}

// The slow, obvious answer: keep every total, find the highest, and count who was alive then.
struct Life {
  std::size_t born;
  std::size_t died;
  std::int64_t bytes;
};

TEST(Peak, AgreesWithTheObviousModelOverRandomStreams) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    TraceBuilder trace;
    std::vector<std::string> live;
    std::map<std::string, Life> open;
    std::vector<Life> lives;
    std::vector<std::int64_t> totals;
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < 2000; ++i) {
      // Waves: phases in which allocation is likelier than free, and the reverse.
      const bool grow = random() % 10 < (i / 200 % 2 == 0 ? 7u : 3u);
      if (live.empty() || grow) {
        const std::string name = std::to_string(i);
        const auto bytes = static_cast<std::int64_t>(random() % 1000);
        trace.alloc(name, Bytes(bytes));
        open[name] = {i, SIZE_MAX, bytes};
        live.push_back(name);
        sum += bytes;
      } else {
        const std::size_t pick = random() % live.size();
        const std::string name = live[pick];
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(pick));
        trace.free(name);
        open[name].died = i;
        sum -= open[name].bytes;
        lives.push_back(open[name]);
        open.erase(name);
      }
      totals.push_back(sum);
    }
    for (const auto& [name, life] : open) lives.push_back(life);
    const auto top = std::max_element(totals.begin(), totals.end());
    const auto moment = static_cast<std::size_t>(top - totals.begin());
    const auto alive = std::count_if(lives.begin(), lives.end(), [&](const Life& life) {
      return life.born <= moment && moment < life.died;
    });

    PeakPass peak;
    testing::play(trace, {&peak});
    EXPECT_EQ(peak.peaks()[0].bytes.raw(), *top);
    EXPECT_EQ(peak.peaks()[0].place.event, moment);
    EXPECT_EQ(peak.peaks()[0].held.size(), static_cast<std::size_t>(alive));
    EXPECT_EQ(total(peak.peaks()[0].held).raw(), *top);
  }
}

}  // namespace
}  // namespace peakline
