#include <gtest/gtest.h>

#include <peakline/device_model.h>

namespace peakline {
namespace {

std::uint64_t allocate(DeviceModel& device, Bytes bytes) { return device.allocate(bytes)->raw(); }

constexpr std::uint64_t kMiB = 1 << 20;

TEST(DriverModel, PutsChunksOf32MiBDownwards) {
  const auto device = make_driver_model({.total = 64_GiB, .startup = {}});
  const std::uint64_t a = allocate(*device, 34_MiB);
  const std::uint64_t b = allocate(*device, 40_MiB);
  EXPECT_EQ(a % (32 * kMiB), 0u);
  EXPECT_EQ(b, a - 64 * kMiB);
}

TEST(DriverModel, FillsTheNewestChunkThatHasRoomFromItsStart) {
  const auto device = make_driver_model({.total = 64_GiB, .startup = {}});
  const std::uint64_t old = allocate(*device, 40_MiB);    // 24 MiB left
  const std::uint64_t young = allocate(*device, 50_MiB);  // 14 MiB left
  EXPECT_EQ(allocate(*device, 2_MiB), young + 50 * kMiB);
  EXPECT_EQ(allocate(*device, 20_MiB), old + 40 * kMiB);
  EXPECT_EQ(allocate(*device, 12_MiB), young + 52 * kMiB);
}

TEST(DriverModel, AnEmptyChunkGoesBackAndItsPlaceIsTheHighestHole) {
  const auto device = make_driver_model({.total = 64_GiB, .startup = {}});
  const std::uint64_t a = allocate(*device, 64_MiB);
  allocate(*device, 64_MiB);
  device->release(Address(a), 64_MiB);
  EXPECT_EQ(allocate(*device, 100_MiB), a - 192 * kMiB) << "does not fit the hole";
  EXPECT_EQ(allocate(*device, 30_MiB), a + 32 * kMiB) << "at the top of the hole";
}

// As in every trace of an H200 that begins with a small segment.
TEST(DriverModel, WhileNothingRunsLargeSegmentsGoBesideTheDriversOwn) {
  const auto device = make_driver_model({.total = 64_GiB});
  const std::uint64_t first = allocate(*device, 2_MiB);
  EXPECT_EQ(first % (32 * kMiB), 30 * kMiB) << "the end of the newest chunk is free";
  EXPECT_EQ(allocate(*device, 20_MiB), first + 74 * kMiB) << "the oldest one has room for it";
  EXPECT_EQ(allocate(*device, 40_MiB), first - 414 * kMiB) << "now the newest one is free";
}

// Layers that are built on the host and copied, one after the other; then the first kernel runs.
TEST(DriverModel, TheDriversOwnIsFreeOnceAKernelIsLaunched) {
  const auto device = make_driver_model({.total = 64_GiB, .startup_segments = 100});
  const std::uint64_t first = allocate(*device, 2_MiB);
  allocate(*device, 20_MiB);
  EXPECT_EQ(allocate(*device, 20_MiB), first - 446 * kMiB);
  EXPECT_EQ(allocate(*device, 20_MiB), first - 478 * kMiB);
  device->launched();
  EXPECT_EQ(allocate(*device, 26_MiB), first - 414 * kMiB);
  device->launched();
}

TEST(DriverModel, WhatTheDriverTakesForItselfIsNoPlaceForSegments) {
  const auto device = make_driver_model({.total = 64_GiB, .startup = {}});
  const std::uint64_t first = allocate(*device, 20_MiB);
  const Bytes free = device->free();
  device->take_own(10_MiB);
  EXPECT_EQ(device->free(), free);
  EXPECT_EQ(allocate(*device, 2_MiB), first + 30 * kMiB);
  EXPECT_LT(allocate(*device, 10_MiB), first);
}

TEST(DriverModel, NeverGivesOutItsLastPages) {
  const auto device = make_driver_model({.total = 100_MiB, .in_use = 10_MiB, .startup = {}});
  EXPECT_FALSE(device->allocate(90_MiB).has_value());
  EXPECT_TRUE(device->allocate(88_MiB).has_value());
  EXPECT_EQ(device->free(), 2_MiB);
  EXPECT_FALSE(device->map(2_MiB));
}

TEST(DriverModel, ReservationsGrowUpwardsAndFillHoles) {
  const auto device = make_driver_model({.total = 64_GiB, .startup = {}});
  const Address a = device->reserve_addresses(72_GiB);
  const Address b = device->reserve_addresses(72_GiB);
  EXPECT_GT(b, a);
  device->release_addresses(a, 72_GiB);
  EXPECT_EQ(device->reserve_addresses(10_GiB), a);
  EXPECT_GT(device->reserve_addresses(72_GiB), b);
}

TEST(RecordedDevice, FollowsTheRecordAndLeavesItForGood) {
  using Kind = SegmentChange::Kind;
  const auto device = make_recorded_device({{Kind::kAlloc, Address(4 * kMiB), 2_MiB, {}, {}},
                                            {Kind::kAlloc, Address(8 * kMiB), 2_MiB, {}, {}},
                                            {Kind::kAlloc, Address(16 * kMiB), 2_MiB, {}, {}}},
                                           {.total = 64_GiB, .startup = {}});
  EXPECT_EQ(allocate(*device, 2_MiB), 4 * kMiB);
  EXPECT_NE(allocate(*device, 20_MiB), 8 * kMiB) << "another size than recorded";
  EXPECT_NE(allocate(*device, 2_MiB), 8 * kMiB) << "the record is of no use any more";
}

}  // namespace
}  // namespace peakline
