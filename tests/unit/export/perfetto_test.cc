#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <peakline/export.h>

#include "base/coding.h"
#include "trace_builder.h"

namespace peakline::testing {
namespace {

// The fields of a message that this trace has: numbers and texts, by field number.
struct Message {
  std::multimap<std::uint64_t, std::uint64_t> numbers;
  std::multimap<std::uint64_t, std::string> texts;

  explicit Message(std::string_view bytes) {
    coding::ByteReader in({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
    while (in.ok() && in.remaining() > 0) {
      const std::uint64_t tag = in.varint();
      if ((tag & 7) == 0) {
        numbers.emplace(tag >> 3, in.varint());
      } else {
        EXPECT_EQ(tag & 7, 2U);
        texts.emplace(tag >> 3, in.text());
      }
    }
    EXPECT_TRUE(in.ok());
  }
  [[nodiscard]] std::uint64_t number(std::uint64_t field) const {
    const auto found = numbers.find(field);
    return found == numbers.end() ? 0 : found->second;
  }
  [[nodiscard]] std::string text(std::uint64_t field) const {
    const auto found = texts.find(field);
    return found == texts.end() ? "" : found->second;
  }
};

// What happens on each track, in order: "12", "begin aten::mm", "end".
std::map<std::string, std::vector<std::string>> tracks_of(std::span<const ExportInput> runs) {
  std::vector<std::byte> out;
  EXPECT_TRUE(export_perfetto(runs, make_memory_sink(out)).ok());
  const Message trace(std::string_view(reinterpret_cast<const char*>(out.data()), out.size()));
  std::map<std::uint64_t, std::string> names;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> words;  // by sequence and id
  std::map<std::string, std::vector<std::string>> happened;
  for (const auto& [field, bytes] : trace.texts) {
    const Message packet(bytes);
    const std::uint64_t sequence = packet.number(10);
    if (packet.texts.contains(60)) {
      const Message track(packet.text(60));
      names[track.number(1)] = track.text(2);
    }
    if (packet.texts.contains(12)) {
      const Message word(Message(packet.text(12)).text(2));
      words[{sequence, word.number(1)}] = word.text(2);
    }
    if (!packet.texts.contains(11)) continue;
    const Message event(packet.text(11));
    std::string what;
    const std::string word = words[{sequence, event.number(10)}];
    switch (event.number(9)) {
      case 1:
        what = "begin " + word;
        break;
      case 2:
        what = "end";
        break;
      case 3:
        what = word;
        break;
      default:
        what = std::to_string(static_cast<std::int64_t>(event.number(30)));
    }
    happened[names[event.number(11)]].push_back(what);
  }
  return happened;
}

std::map<std::string, std::vector<std::string>> tracks_of(const TraceBuilder& trace) {
  const std::vector<std::byte> bytes = trace.bytes();
  const std::vector<ExportInput> runs{{"run.peak", [&bytes]() -> Result<std::unique_ptr<Source>> {
                                         return make_memory_source(bytes);
                                       }}};
  return tracks_of(runs);
}

using Values = std::vector<std::string>;

TEST(ExportPerfetto, CountersHaveTheCategoryThatABlocksDeathDecides) {
  TraceBuilder trace;
  trace.enter("Net").op("aten::mm").alloc("scratch", Bytes(512)).alloc("out", Bytes(1024));
  trace.free("scratch").op_end().leave("Net").phase_begin(Phase::kBackward).free("out");
  trace.phase_end(Phase::kBackward);
  const auto tracks = tracks_of(trace);
  EXPECT_EQ(tracks.at("cuda:0 allocated"), (Values{"512", "1536", "1024", "0"}));
  EXPECT_EQ(tracks.at("cuda:0 Workspace"), (Values{"512", "0"}));
  EXPECT_EQ(tracks.at("cuda:0 Activation"), (Values{"1024", "0"}));
}

TEST(ExportPerfetto, ReservedFollowsTheSegments) {
  TraceBuilder trace;
  trace.segment_alloc(0x1000, 2_MiB).segment_alloc(0x9000'0000, 4_MiB).segment_free(0x1000, 2_MiB);
  EXPECT_EQ(tracks_of(trace).at("cuda:0 reserved"), (Values{"2097152", "6291456", "4194304"}));
}

TEST(ExportPerfetto, StepsPhasesModulesAndOpsAreSlices) {
  TraceBuilder trace;
  trace.enter("Net").op("aten::mm").op_end().leave("Net").phase_begin(Phase::kBackward);
  trace.backward("Net").backward_end("Net").phase_end(Phase::kBackward).step().marker("here");
  const auto tracks = tracks_of(trace);
  EXPECT_EQ(tracks.at("steps"), (Values{"begin step 1", "end", "begin step 2", "end"}));
  EXPECT_EQ(tracks.at("backward"), (Values{"begin backward", "end"}));
  EXPECT_EQ(tracks.at("main modules"), (Values{"begin Net", "end", "begin Net (backward)", "end"}));
  EXPECT_EQ(tracks.at("main ops"), (Values{"begin aten::mm", "end"}));
  EXPECT_EQ(tracks.at("marks"), Values{"here"});
}

TEST(ExportPerfetto, AnEndWithoutABeginIsLeftOut) {
  TraceBuilder trace;
  trace.op_end().phase_end(Phase::kForward).leave("Net").op("aten::mm").op_end();
  EXPECT_EQ(tracks_of(trace).at("main ops"), (Values{"begin aten::mm", "end"}));
}

TEST(ExportPerfetto, TheClocksStreamsAreTracksFromTheLastStepOn) {
  TraceBuilder trace;
  trace.info("streams",
             R"({"us":9.0,"kinds":["compute","memory"],"streams":[{"device":0,"name":"stream 7",)"
             R"("spans":[[0.0,2.0,0],[2.0,3.0,1],[1.0,4.0,0]]}]})");
  trace.marker("one").step().marker("two").step();
  const auto tracks = tracks_of(trace);
  // What runs beside the first on the same stream has a track of its own, under the same name.
  EXPECT_EQ(tracks.at("cuda:0 stream 7, by the clock"),
            (Values{"begin compute", "end", "begin compute", "end", "begin memory", "end"}));
}

TEST(ExportPerfetto, AFactThatIsNoStreamsIsLeftOut) {
  for (
      const std::string_view fact :
      {"", "[]", "{}", R"({"kinds":1,"streams":[]})", R"({"kinds":["a"],"streams":[7]})",
       R"({"kinds":["a"],"streams":[{"spans":[[0,-1,0],[1e300,1,0],[0,1,9],["x",1,0],[0,1]]}]})"}) {
    TraceBuilder trace;
    trace.info("streams", fact).marker("one").step();
    for (const auto& [name, happened] : tracks_of(trace)) {
      EXPECT_EQ(name.find("clock"), std::string::npos) << fact;
    }
  }
}

TEST(Exports, SurviveEventsThatCannotBeTrue) {
  constexpr Bytes kHuge(INT64_MAX - 5);
  constexpr Bytes kFar(std::int64_t{1} << 60);  // beyond every address space
  TraceBuilder trace;
  trace.segment_alloc(UINT64_MAX - 4096, kFar).segment_alloc(0, 1_MiB).segment_free(7, kFar);
  trace.alloc("a", 1_MiB, kHuge).alloc("b", Bytes(1), Bytes(-7)).resize("a", Bytes(0));
  trace.stream_use("ghost", 1).free_completed("ghost").free("b").stream_use("b", 3);
  trace.add(Alloc{BlockId(99), 1_MiB, 1_MiB, Address(UINT64_MAX - 100), StreamId(5), DeviceId(0)});
  trace.add(Alloc{BlockId(98), 1_MiB, 1_MiB, Address(UINT64_MAX - 100), StreamId(5), DeviceId(0)});
  trace.add(Label{BlockId(99), CategoryId(63), ModuleId(77), NameId(78)});
  trace.add(OpBegin{OpId(1234)}).add(ModuleEnter{ModuleId(4321), ModulePass::kForward});
  trace.add(SegmentFree{Address(UINT64_MAX - 10), kFar, DeviceId(0)});
  trace.empty_cache().oom(kHuge).add(Free{BlockId(99)}).add(Free{BlockId(99)});
  const std::vector<std::byte> bytes = trace.bytes();
  const std::vector<ExportInput> runs{{"run.peak", [&bytes]() -> Result<std::unique_ptr<Source>> {
                                         return make_memory_source(bytes);
                                       }}};
  std::vector<std::byte> out;
  EXPECT_TRUE(export_perfetto(runs, make_memory_sink(out)).ok());
  EXPECT_TRUE(export_snapshot(runs, make_memory_sink(out)).ok());
  const std::vector<std::string> tables = *choose_tables({});
  EXPECT_TRUE(export_tables(runs, tables, *make_json_writer(make_memory_sink(out))).ok());
}

}  // namespace
}  // namespace peakline::testing
