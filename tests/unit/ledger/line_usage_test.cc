#include "ledger/line_usage.h"

#include <gtest/gtest.h>

#include "replayed.h"

namespace peakline {
namespace {

using testing::TraceBuilder;
using namespace peakline::literals;

struct Found {
  std::map<LinePlace, LineUsage> usage;
  const Dictionary& dictionary;

  [[nodiscard]] const LineUsage* at(std::uint32_t line, std::uint32_t caller = 0) const {
    for (const auto& [place, found] : usage) {
      if (dictionary.line(place.line).line == line &&
          dictionary.line(place.caller).line == caller) {
        return &found;
      }
    }
    return nullptr;
  }
};

Found lines_of(const TraceBuilder& trace) {
  LineUsagePass pass;
  testing::play(trace, {&pass});
  return {pass.usage(DeviceId(0)), trace.dictionary()};
}

TEST(LineUsage, ALineIsTheInnermostThatIsNotALibrarys) {
  TraceBuilder trace;
  trace.at("a.py:1 main > b.py:2 f > lib:torch.py:9 call").alloc("x", 4_MiB);
  trace.at("a.py:1 main > b.py:2 f > lib:torch.py:8 call").alloc("y", 2_MiB);
  const Found found = lines_of(trace);
  ASSERT_NE(found.at(2), nullptr);
  EXPECT_EQ(found.at(2)->allocations, 2u);
  EXPECT_EQ(found.at(2)->allocated, 6_MiB);
  EXPECT_EQ(found.at(2)->largest, 4_MiB);
  EXPECT_EQ(found.usage.size(), 1u);
}

TEST(LineUsage, AStackOfLibrariesAloneHasTheirInnermostLine) {
  const auto trace = TraceBuilder{}.at("lib:a.py:1 f > lib:b.py:2 g").alloc("x", 4_MiB);
  EXPECT_NE(lines_of(trace).at(2), nullptr);
}

TEST(LineUsage, BackwardGoesToTheLineOfTheForwardCall) {
  TraceBuilder trace;
  trace.at("a.py:1 main > b.py:2 f").alloc("x", 4_MiB);
  trace.at("a.py:7 main", "a.py:1 main > b.py:2 f").alloc("g", 3_MiB);
  const Found found = lines_of(trace);
  ASSERT_NE(found.at(2, 7), nullptr);
  EXPECT_EQ(found.at(2, 7)->allocated, 3_MiB);
  EXPECT_EQ(found.at(2)->allocated, 4_MiB);
}

TEST(LineUsage, AStackIsOfTheNextAllocationOfItsThreadOnly) {
  TraceBuilder trace;
  trace.at("a.py:1 main").thread("other").alloc("y", 1_MiB).thread("main").alloc("x", 4_MiB);
  trace.alloc("z", 8_MiB);
  const Found found = lines_of(trace);
  ASSERT_NE(found.at(1), nullptr);
  EXPECT_EQ(found.at(1)->allocated, 4_MiB);
  EXPECT_EQ(found.usage.size(), 1u);
}

TEST(LineUsage, AnUnknownStackIsCounted) {
  LineUsagePass pass;
  const Diagnostics lost = testing::play(
      TraceBuilder{}.add(CallStack{StackId(99), StackId{}}).alloc("x", 1_MiB), {&pass});
  EXPECT_EQ(lost.of(Loss::kUnknownId), 1u);
}

}  // namespace
}  // namespace peakline
