#include <gtest/gtest.h>

#include "import_support.h"

namespace peakline::testing {
namespace {

constexpr const char* kHeader = "action,addr,size,stream\n";

std::string error_of(const std::string& rows) {
  return imported_csv(kHeader + rows)->status.message();
}

TEST(ImportCsv, AllocationsFreesAndSegmentsBecomeEvents) {
  const auto run = imported_csv(std::string(kHeader) +
                                "segment_alloc,2097152,2097152,0\n"
                                "alloc,2097152,100,3\n"
                                "free_requested,2097152,100,3\n"
                                "free_completed,2097152,100,3\n"
                                "empty_cache,0,0,0\n"
                                "segment_free,2097152,2097152,0\n");
  ASSERT_TRUE(run->status.ok()) << run->status.message();
  EXPECT_EQ(run->counts.allocations, 1u);
  const auto allocs = run->all<Alloc>();
  ASSERT_EQ(allocs.size(), 1u);
  EXPECT_EQ(allocs[0].requested, 100_B);
  EXPECT_EQ(allocs[0].bytes, 512_B);
  EXPECT_EQ(allocs[0].stream, StreamId(3));
  EXPECT_EQ(run->all<Free>().size(), 1u);
  EXPECT_TRUE(run->all<StreamUse>().empty());
  EXPECT_TRUE(run->all<FreeCompleted>().empty());
  EXPECT_EQ(run->all<EmptyCache>().size(), 1u);
  EXPECT_EQ(run->all<SegmentFree>().size(), 1u);
}

TEST(ImportCsv, AFreeThatIsCompletedLaterWaitedForAnotherStream) {
  const auto run = imported_csv(std::string(kHeader) +
                                "alloc,512,100,0\nfree_requested,512,100,0\nalloc,1024,1,0\n"
                                "free_completed,512,100,0\n");
  ASSERT_TRUE(run->status.ok()) << run->status.message();
  ASSERT_EQ(run->all<StreamUse>().size(), 1u);
  EXPECT_EQ(run->all<StreamUse>()[0].stream, kUnknownStream);
  EXPECT_EQ(run->all<FreeCompleted>().size(), 1u);
}

// Two segments that are free, as rows.
constexpr const char* kTwoFree =
    "segment_alloc,2097152,20971520,0\nalloc,2097152,20971520,0\n"
    "segment_alloc,41943040,20971520,0\nalloc,41943040,20971520,0\n"
    "free_requested,2097152,1,0\nfree_completed,2097152,1,0\n"
    "free_requested,41943040,1,0\nfree_completed,41943040,1,0\n";

TEST(ImportCsv, AllFreeSegmentsGivenBackAreAnEmptiedCache) {
  const auto run = imported_csv(std::string(kHeader) + kTwoFree +
                                "segment_free,2097152,20971520,0\n"
                                "segment_free,41943040,20971520,0\n");
  ASSERT_TRUE(run->status.ok()) << run->status.message();
  EXPECT_EQ(run->all<EmptyCache>().size(), 1u);
}

TEST(ImportCsv, SomeFreeSegmentsGivenBackAreGarbage) {
  const auto run = imported_csv(std::string(kHeader) + kTwoFree +
                                "segment_free,2097152,20971520,0\n"
                                "segment_alloc,81788928,31457280,0\nalloc,81788928,31457280,0\n");
  ASSERT_TRUE(run->status.ok()) << run->status.message();
  EXPECT_TRUE(run->all<EmptyCache>().empty());
}

TEST(ImportCsv, ColumnsMayComeInAnyOrderAndCommentsAreSkipped) {
  const auto run =
      imported_csv("# recorded somewhere\nsize,stream,note,addr,action\n7,0,hello,512,alloc\n");
  ASSERT_TRUE(run->status.ok()) << run->status.message();
  EXPECT_EQ(run->all<Alloc>()[0].requested, 7_B);
}

TEST(ImportCsv, WindowsLineEndsAreFine) {
  EXPECT_TRUE(imported_csv("action,addr,size,stream\r\nalloc,512,7,0\r\n")->status.ok());
}

TEST(ImportCsv, WhatCannotBeTrueIsSaidWithItsLine) {
  EXPECT_EQ(error_of("alloc,512,9,0\nfree_requested,1024,9,0\n"),
            "memory, line 3: nothing is allocated at 1024, so it cannot be freed");
  EXPECT_EQ(error_of("alloc,512,1000,0\nalloc,1024,9,0\n"),
            "memory, line 3: the block at 1024 lies over the live block at 512");
  EXPECT_EQ(error_of("alloc,1024,9,0\nalloc,512,1000,0\n"),
            "memory, line 3: the block at 512 lies over the live block at 1024");
  EXPECT_EQ(error_of("alloc,512,-9,0\n"), "memory, line 2: the size -9 is below zero");
  EXPECT_EQ(error_of("alloc,512,9,0\nalloc,10"),
            "memory, line 3: has 2 fields instead of 4: is the file cut off?");
  EXPECT_EQ(error_of("aloc,512,9,0\n"),
            "memory, line 2: 'aloc' is not an action of an allocator trace");
  EXPECT_EQ(error_of("alloc,512,nine,0\n"), "memory, line 2: 'nine' is not a size");
  EXPECT_EQ(error_of("alloc,12z,9,0\n"), "memory, line 2: '12z' is not an address");
  EXPECT_EQ(error_of("alloc,0,9,0\n"), "memory, line 2: an allocation cannot be at address 0");
  EXPECT_EQ(error_of("alloc,512,99999999999999999999,0\n"),
            "memory, line 2: '99999999999999999999' is not a size");
  EXPECT_EQ(error_of("free_completed,512,9,0\n"),
            "memory, line 2: no free of 512 is under way that could be completed");
}

TEST(ImportCsv, AFileWithoutTheColumnsIsRefused) {
  EXPECT_EQ(imported_csv("action,addr\n")->status.message(),
            "memory, line 1: the header has no column 'size': an allocator trace needs "
            "action,addr,size,stream");
  EXPECT_NE(imported_csv("")->status.message().find("is empty"), std::string::npos);
}

TEST(ImportCsv, AnEndlessLineIsNotHeldInMemory) {
  const std::string text(100'000, 'x');
  EXPECT_NE(imported_csv(text)->status.message().find("longer than"), std::string::npos);
}

TEST(KindOfFile, IsToldByItsFirstBytes) {
  const auto kind = [](std::string_view start) {
    return kind_of_file(std::as_bytes(std::span(start.data(), start.size())));
  };
  EXPECT_EQ(kind("action,addr,size,stream\n"), FileKind::kCsv);
  EXPECT_EQ(kind("\x80\x04\x95"), FileKind::kPickle);
  EXPECT_EQ(kind("(dp0\n"), FileKind::kPickle);
  EXPECT_EQ(kind("\x89PEAK\r\n"), FileKind::kRecording);
  EXPECT_EQ(kind("hello"), FileKind::kOther);
  EXPECT_EQ(kind(""), FileKind::kOther);
}

}  // namespace
}  // namespace peakline::testing
