// Records that make no sense, or come from a newer version.
#include <gtest/gtest.h>

#include "read_trace.h"
#include "trace_bytes.h"

namespace peakline::testing {
namespace {

using Column = std::vector<std::uint8_t>;

constexpr std::uint8_t kStep = trace::kKindOf<StepEnd>;
constexpr std::uint8_t kAllocTag = trace::kKindOf<Alloc>;
constexpr std::uint8_t kFreeTag = trace::kKindOf<Free>;
constexpr auto kSureness = static_cast<std::uint8_t>(trace::RecordKind::kSureness);
constexpr auto kCallStack = static_cast<std::uint8_t>(trace::RecordKind::kCallStack);
constexpr auto kLaterWord = static_cast<std::uint8_t>(trace::RecordKind::kLaterWord);
constexpr auto kLaterEvent = static_cast<std::uint8_t>(trace::RecordKind::kLaterEvent);

std::uint8_t kind(trace::RecordKind kind) { return static_cast<std::uint8_t>(kind); }

ReadTrace read_payload(std::uint64_t events, const Column& payload) {
  return read_trace(file_header() + chunk(2, payload) + chunk(3, trailer_payload(events)));
}

ReadTrace read_records(std::uint64_t events, const Column& records, const Column& times = {},
                       const Column& addresses = {}) {
  return read_payload(events, events_payload(events, records, times, addresses));
}

TEST(NewerFile, AnotherMinorVersionIsRead) {
  const ReadTrace read = read_trace(file_header(1, 9) + chunk(2, events_payload(1, {kStep})) +
                                    chunk(3, trailer_payload(1)));
  EXPECT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_EQ(read.events.size(), 1u);
}

TEST(NewerFile, AnotherMajorVersionIsRefusedInOneSentence) {
  const ReadTrace read = read_trace(file_header(2, 3));
  EXPECT_EQ(read.status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(read.status.message(),
            "'memory' has format version 2.3, and this peakline reads version 1: update peakline");
}

TEST(NewerFile, UnknownChunksAreSkippedAndCounted) {
  const Bytestring unknown = chunk(77, Column{1, 2, 3}) + chunk_with(200, 0xfe, 9, 2, Column{4, 5});
  const ReadTrace read = read_trace(file_header() + unknown + chunk(2, events_payload(1, {kStep})) +
                                    unknown + chunk(3, trailer_payload(1)));
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_EQ(read.events.size(), 1u);
  EXPECT_EQ(read.diagnostics.of(Loss::kUnknownChunk), 4u);
}

TEST(NewerFile, AnUnknownFlagOfAKnownChunkIsRefused) {
  const Column payload = events_payload(1, {kStep});
  const auto size = static_cast<std::uint32_t>(payload.size());
  const ReadTrace read = read_trace(file_header() + chunk_with(2, 0x40, size, size, payload));
  EXPECT_EQ(read.status.code(), StatusCode::kUnsupported);
}

TEST(NewerFile, UnknownRecordsAreSkippedAndCountedAndTheirTimePasses) {
  const std::uint8_t timed = trace::kTimeFlag;
  for (const std::uint8_t tag : {kLaterWord, kLaterEvent}) {
    const auto timed_tag = static_cast<std::uint8_t>(tag | timed);
    const ReadTrace read = read_records(
        2, {kStep | timed, timed_tag, 3, 9, 9, 9, tag, 0, kStep | timed}, {10, 20, 30});
    ASSERT_TRUE(read.status.ok()) << read.status.message();
    ASSERT_EQ(read.events.size(), 2u);
    EXPECT_EQ(read.events[1].time, TimeNs(60));
    EXPECT_EQ(read.diagnostics.of(Loss::kUnknownRecord), 2u);
  }
}

// A 0.1.0 reader skips it, and finds as many events as the chunk and the trailer promise.
TEST(Sureness, IsReadBehindItsLengthAndCountedByNobody) {
  const ReadTrace read = read_records(1, {kStep, kSureness, 2, 0, 2});
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  ASSERT_EQ(read.events.size(), 2u);
  EXPECT_EQ(std::get<Sureness>(read.events[1].body).certainty, Certainty::kGuessed);
  EXPECT_TRUE(read.diagnostics.empty());
}

TEST(Sureness, FieldsOfLaterVersionsAreSkipped) {
  const ReadTrace read = read_records(1, {kSureness, 4, 0, 1, 77, 88, kStep});
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  ASSERT_EQ(read.events.size(), 2u);
  EXPECT_EQ(std::get<Sureness>(read.events[0].body).certainty, Certainty::kModelled);
}

TEST(Sureness, ALengthThatCannotBeIsRefused) {
  EXPECT_FALSE(read_records(0, {kSureness, 1, 0, 1}).status.ok());
  EXPECT_FALSE(read_records(0, {kSureness, 120, 0, 1}).status.ok());
}

// Names 1 and 2, line 1 with its text, stack 1.
Column a_stack() {
  return {kind(trace::RecordKind::kDefineName),
          4,
          'm',
          '.',
          'p',
          'y',
          kind(trace::RecordKind::kDefineName),
          1,
          'f',
          kLaterWord,
          7,
          0,
          1,
          1,
          2,
          12,
          1,
          'x',
          kLaterWord,
          3,
          1,
          0,
          1};
}

Column then(Column a, const Column& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(CallStack, LinesAndStacksAreReadAndCountedByNobody) {
  const ReadTrace read = read_records(1, then(a_stack(), {kCallStack, 1, 1, kStep}));
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  ASSERT_EQ(read.events.size(), 2u);
  EXPECT_EQ(std::get<CallStack>(read.events[0].body).stack, StackId(1));
  const CodeLine& line = read.dictionary.line(read.dictionary.stack(StackId(1)).line);
  EXPECT_EQ(read.dictionary.name(line.file), "m.py");
  EXPECT_EQ(read.dictionary.name(line.function), "f");
  EXPECT_EQ(line.line, 12u);
  EXPECT_EQ(line.text, "x");
  EXPECT_TRUE(line.library);
  EXPECT_TRUE(read.diagnostics.empty());
}

TEST(CallStack, TheForwardStackComesWithItsFlagAndLaterFieldsAreSkipped) {
  const auto with_forward = static_cast<std::uint8_t>(kCallStack | trace::kFlagA);
  const ReadTrace read =
      read_records(0, then(a_stack(), {with_forward, 4, 1, 1, 77, 88, kCallStack, 2, 1, 99}));
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  ASSERT_EQ(read.events.size(), 2u);
  EXPECT_EQ(std::get<CallStack>(read.events[0].body).forward, StackId(1));
  EXPECT_EQ(std::get<CallStack>(read.events[1].body).forward, StackId{});
}

TEST(CallStack, WhatIsNotDefinedBeforeOrCannotBeIsRefused) {
  EXPECT_FALSE(read_records(0, {kLaterWord, 3, 1, 0, 1}).status.ok());  // no such line
  EXPECT_FALSE(read_records(0, then(a_stack(), {kLaterWord, 3, 1, 2, 1})).status.ok());  // caller
  EXPECT_FALSE(read_records(0, {kLaterWord, 6, 0, 0, 9, 0, 12, 0}).status.ok());  // no such name
  EXPECT_FALSE(read_records(0, {kLaterWord, 7, 0, 0, 0, 0, 12, 5, 'x'}).status.ok());  // text
  EXPECT_FALSE(read_records(0, {kCallStack, 0, 1}).status.ok());
  EXPECT_FALSE(read_records(0, {kCallStack, 120, 1}).status.ok());
  EXPECT_FALSE(read_records(0, {kLaterWord, 120, 0}).status.ok());
}

TEST(CallStack, StacksAreOnlySoDeep) {
  Column records = a_stack();
  for (std::uint32_t caller = 1; caller < Dictionary::kMaxStackDepth; ++caller) {
    if (caller < 128) {
      records = then(records, {kLaterWord, 3, 1, static_cast<std::uint8_t>(caller), 1});
    } else {
      const auto low = static_cast<std::uint8_t>((caller & 0x7f) | 0x80);
      records = then(records, {kLaterWord, 4, 1, low, static_cast<std::uint8_t>(caller >> 7), 1});
    }
  }
  EXPECT_TRUE(read_records(0, records).status.ok());
  EXPECT_FALSE(read_records(0, then(records, {kLaterWord, 4, 1, 0x80, 8, 1})).status.ok());
}

TEST(Region, BeginsWithANameAndEnds) {
  const ReadTrace read = read_records(0, {kLaterEvent, 2, 0, 5, kLaterEvent, 1, 1});
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  ASSERT_EQ(read.events.size(), 2u);
  EXPECT_EQ(std::get<RegionBegin>(read.events[0].body).name, NameId(5));
  EXPECT_TRUE(std::holds_alternative<RegionEnd>(read.events[1].body));
}

TEST(NewerFile, AdditionalColumnsAndTrailerFieldsAreIgnored) {
  Column trailer = trailer_payload(1);
  trailer.push_back(42);
  const ReadTrace read = read_trace(
      file_header() + chunk(2, events_payload(1, {kStep}, {}, {}, {1, 2, 3})) + chunk(3, trailer));
  EXPECT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_EQ(read.events.size(), 1u);
}

TEST(Records, WordsDefinedInTheFileMayHaveEveryKind) {
  using trace::RecordKind;
  const ReadTrace read = read_records(1, {kind(RecordKind::kDefineName),
                                          1,
                                          'n',
                                          kind(RecordKind::kDefineOp),
                                          1,
                                          'o',
                                          kind(RecordKind::kDefineModule),
                                          0,
                                          1,
                                          'm',
                                          1,
                                          't',
                                          kind(RecordKind::kDefineModule),
                                          1,
                                          3,
                                          'm',
                                          '.',
                                          'k',
                                          0,
                                          kind(RecordKind::kDefineDevice),
                                          2,
                                          1,
                                          'd',
                                          0,
                                          kind(RecordKind::kDefineThread),
                                          1,
                                          'x',
                                          kind(RecordKind::kDefineCategory),
                                          17,
                                          1,
                                          'c',
                                          kind(RecordKind::kDefineCategory),
                                          17,
                                          1,
                                          's',
                                          kStep});
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_EQ(read.dictionary.name(NameId(1)), "n");
  EXPECT_EQ(read.dictionary.op(OpId(1)), "o");
  EXPECT_EQ(read.dictionary.module(ModuleId(2)).path, "m.k");
  EXPECT_EQ(read.dictionary.module(ModuleId(2)).parent, ModuleId(1));
  EXPECT_EQ(read.dictionary.device(DeviceId(0)).total, Bytes(1));
  EXPECT_EQ(read.dictionary.thread(ThreadId(0)), "x");
  EXPECT_EQ(read.dictionary.category_label(CategoryId(18)), "c / s");
}

TEST(Records, WhatMakesNoSenseIsAnErrorThatSaysWhere) {
  using trace::RecordKind;
  const auto alloc_with_extra = static_cast<std::uint8_t>(kAllocTag | trace::kFlagA);
  const auto phase = static_cast<std::uint8_t>(trace::kKindOf<PhaseBegin> | 0xc0);
  const Column cases[] = {
      {kFreeTag},                                                    // no block
      {kFreeTag, 0x80},                                              // half a number
      {kFreeTag, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2},    // more than 64 bits
      {kFreeTag, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255},  // never ends
      {kAllocTag, 1},                                                // no address in its column
      {alloc_with_extra, 0x40, 1},                                   // an extra nobody knows
      {trace::kKindOf<OpBegin>, 255, 255, 255, 255, 127},            // an op beyond 32 bits
      {phase},                                                       // a fourth phase
      {kStep | trace::kTimeFlag},                                    // no time in its column
      {kind(RecordKind::kThread), 255, 255, 127},                    // a thread beyond 16 bits
      {kind(RecordKind::kDefineName), 5, 'a'},                       // text past the end
      {kind(RecordKind::kDefineModule), 9, 1, 'm', 0},               // a parent that is not there
      {kind(RecordKind::kDefineCategory), 63, 1, 'c'},               // likewise
      {kind(RecordKind::kDefineCategory), 11, 1, 'c'},               // a third level
      {kLaterEvent, 100, 1},                                         // longer than the chunk
      {kLaterEvent, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 1},
  };
  for (const Column& records : cases) {
    const ReadTrace read = read_records(1, records);
    ASSERT_FALSE(read.status.ok()) << "record " << int{records[0]};
    EXPECT_EQ(read.status.message(),
              "'memory' is damaged at byte 16: a record makes no sense 7 bytes into the chunk")
        << "record " << int{records[0]};
  }
}

TEST(Records, TimeThatRunsBackwardsIsAnError) {
  const Column longest{255, 255, 255, 255, 255, 255, 255, 255, 255, 1};
  const ReadTrace read = read_records(1, {kStep | trace::kTimeFlag}, longest);
  EXPECT_FALSE(read.status.ok());
}

TEST(Records, EventCountsAndColumnsMustAgree) {
  EXPECT_FALSE(read_records(2, {kStep}).status.ok());
  EXPECT_FALSE(read_records(1, {kStep, kStep}).status.ok());
  EXPECT_FALSE(read_records(1, {kStep}, {5}).status.ok());
  EXPECT_FALSE(read_records(1, {kStep}, {}, {5}).status.ok());
  EXPECT_TRUE(read_records(1, {kStep}).status.ok());
}

TEST(Records, ColumnLengthsMustFillTheChunk) {
  Column payload = events_payload(1, {kStep});
  payload.push_back(0);
  EXPECT_FALSE(read_payload(1, payload).status.ok());
  EXPECT_FALSE(read_payload(1, Column{1, 0, 0, 3, 1, 255, 255, 127, 0, kStep}).status.ok());
  EXPECT_FALSE(read_payload(1, Column{1, 0, 0, 2, 1, 0, kStep}).status.ok()) << "two columns";
  EXPECT_FALSE(read_payload(1, Column{1, 0, 0, 100}).status.ok());
  EXPECT_FALSE(read_payload(0, Column{}).status.ok());
}

TEST(Records, FactsThatMakeNoSenseAreAnError) {
  EXPECT_FALSE(read_trace(file_header() + chunk(1, Column{3, 'a'})).status.ok());
  EXPECT_FALSE(read_trace(file_header() + chunk(1, Column{1, 'a'})).status.ok());
  EXPECT_FALSE(read_trace(file_header() + chunk(3, Column{})).status.ok());
}

TEST(Records, MoreWordsThanTheLimitAreAnError) {
  Column records;
  for (std::size_t i = 0; i <= Dictionary::kMaxWords; ++i) {
    records.insert(records.end(), {kind(trace::RecordKind::kDefineName), 1, 'n'});
  }
  const ReadTrace read = read_records(0, records);
  EXPECT_NE(read.status.message().find("it defines more than 1048576 words"), std::string::npos)
      << read.status.message();
}

}  // namespace
}  // namespace peakline::testing
