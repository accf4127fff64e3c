#include <gtest/gtest.h>

#include <peakline/clock.h>

namespace peakline {
namespace {

constexpr Clock::Stream kMain{0, 0};
constexpr Clock::Stream kSide{0, 3};  // as torch numbers one without priority

TimeRates host_of(double op_us) {
  TimeRates rates;
  rates.host_op_us = op_us;
  rates.host_plain_us = op_us;
  rates.host_backward_us = op_us;
  rates.host_launch_us = 0;
  rates.host_sync_us = 0;
  return rates;
}

OpTime kernel(double us, TimeBound bound = TimeBound::kCompute) {
  OpTime time;
  time.us = us;
  time.kernels = 1;
  time.bound = bound;
  return time;
}

TEST(Clock, LongKernelsAreBoundByTheGpuAndTheHostRunsAhead) {
  Clock clock(host_of(1));
  for (int i = 0; i < 10; ++i) clock.op(kMain, kernel(100), Issue::kForward);
  const Timing timing = clock.timing();
  EXPECT_DOUBLE_EQ(timing.elapsed_ms, 1.001);
  EXPECT_DOUBLE_EQ(timing.gpu_busy_ms, 1.0);
  EXPECT_DOUBLE_EQ(timing.host_ms, 0.010);
  EXPECT_EQ(timing.bound_by(), "compute");
}

TEST(Clock, ShortKernelsAreBoundByTheHost) {
  Clock clock(host_of(10));
  for (int i = 0; i < 10; ++i) clock.op(kMain, kernel(2), Issue::kForward);
  const Timing timing = clock.timing();
  EXPECT_DOUBLE_EQ(timing.elapsed_ms, 0.102);
  EXPECT_DOUBLE_EQ(timing.gpu_busy_ms, 0.020);
  EXPECT_EQ(timing.bound_by(), "host");
}

TEST(Clock, AHostThatNeverWaitsBoundsTheStepHoweverBusyTheGpuIs) {
  Clock clock(host_of(10));
  for (int i = 0; i < 1000; ++i) clock.op(kMain, kernel(9), Issue::kForward);
  EXPECT_EQ(clock.timing().bound_by(), "host");
}

TEST(Clock, PythonBetweenOpsIsTheHosts) {
  TimeRates rates = host_of(1);
  rates.host_python_us = 0.5;
  Clock clock(rates);
  clock.python(100);
  clock.op(kMain, kernel(2), Issue::kForward);
  EXPECT_DOUBLE_EQ(clock.timing().host_ms, 0.051);
  EXPECT_DOUBLE_EQ(clock.timing().elapsed_ms, 0.053);
}

TEST(Clock, AnOpThatAsksALibraryTakesTheHostLonger) {
  Clock clock(host_of(10));
  OpTime product = kernel(2);
  product.issue = 3;
  clock.op(kMain, product, Issue::kForward);
  EXPECT_DOUBLE_EQ(clock.now_us(), 30);
}

TEST(Clock, AnOpThatIsNotRecordedHasAPriceOfItsOwn) {
  TimeRates rates = host_of(10);
  rates.host_plain_us = 6;
  Clock clock(rates);
  clock.op(kMain, kernel(2), Issue::kPlain);
  EXPECT_DOUBLE_EQ(clock.now_us(), 6);
  clock.op(kMain, kernel(2), Issue::kForward);
  EXPECT_DOUBLE_EQ(clock.now_us(), 16);
}

TEST(Clock, WhatTheHostComputesItselfKeepsItFromIssuing) {
  Clock clock(host_of(1));
  OpTime drawn;
  drawn.host_us = 500;
  clock.op({-1, 0}, drawn, Issue::kPlain);
  clock.op(kMain, kernel(5), Issue::kPlain);
  EXPECT_DOUBLE_EQ(clock.timing().elapsed_ms, 0.50625);  // making it is a quarter of an op
  EXPECT_DOUBLE_EQ(clock.timing().gpu_busy_ms, 0.005);
}

TEST(Clock, TheFirstOfManyKernelsRunsWhileTheHostStartsTheOthers) {
  TimeRates rates = host_of(10);
  rates.host_launch_us = 4;
  OpTime steps = kernel(5 * 100);
  steps.kernels = 100;
  Clock slow_gpu(rates);
  slow_gpu.op(kMain, steps, Issue::kForward);
  EXPECT_DOUBLE_EQ(slow_gpu.end_us(), 10 + 500);  // the queue never runs dry
  rates.host_launch_us = 8;
  Clock slow_host(rates);
  slow_host.op(kMain, steps, Issue::kForward);
  EXPECT_DOUBLE_EQ(slow_host.end_us(), 10 + 99 * 8 + 5);  // the last kernel follows its launch
  EXPECT_DOUBLE_EQ(slow_host.timing().gpu_busy_ms, 0.5);
}

TEST(Clock, GapsBetweenKernelsTakeTimeAndAreNotBusy) {
  TimeRates rates = host_of(0);
  rates.event_us = 1;
  Clock clock(rates);
  for (int i = 0; i < 10; ++i) clock.op(kMain, kernel(5), Issue::kForward);
  EXPECT_DOUBLE_EQ(clock.timing().elapsed_ms, 0.050);
  EXPECT_NEAR(clock.timing().gpu_busy_ms, 0.040, 1e-9);
}

TEST(Clock, AKernelOfAStreamWithPriorityStartsBesideALongOneWhichTakesLonger) {
  constexpr Clock::Stream kFirst{0, 5};  // torch's first stream of priority -1
  Clock clock(host_of(0));
  clock.op(kMain, kernel(100), Issue::kForward);
  clock.op(kFirst, kernel(10), Issue::kForward);
  EXPECT_DOUBLE_EQ(clock.record(kFirst), 10);
  clock.op(kMain, kernel(100), Issue::kForward);
  EXPECT_DOUBLE_EQ(clock.record(kMain), 210);
}

TEST(Clock, AnEventHappensWhenItsStreamGetsThere) {
  Clock clock(host_of(1));
  const double before = clock.record(kMain);
  clock.op(kMain, kernel(50), Issue::kForward);
  EXPECT_DOUBLE_EQ(clock.record(kMain) - before, 51);
  EXPECT_DOUBLE_EQ(clock.record(kSide), 1);  // nothing runs there
}

TEST(Clock, AStreamThatWaitsForAnEventStartsAfterIt) {
  Clock clock(host_of(0));
  clock.op(kMain, kernel(100), Issue::kForward);
  clock.wait(kSide, clock.record(kMain));
  clock.op(kSide, kernel(3, TimeBound::kLatency), Issue::kForward);
  EXPECT_DOUBLE_EQ(clock.record(kSide), 103);
}

TEST(Clock, KernelsThatFillTheGpuTakeTurnsAndSmallOnesRunBeside) {
  Clock clock(host_of(0));
  clock.op(kMain, kernel(100), Issue::kForward);
  clock.op(kSide, kernel(100), Issue::kForward);
  EXPECT_DOUBLE_EQ(clock.end_us(), 200);
  clock.op({0, 9}, kernel(5, TimeBound::kLatency), Issue::kForward);
  EXPECT_DOUBLE_EQ(clock.record({0, 9}), 5);
}

TEST(Clock, CopiesAndCollectivesRunBesideKernels) {
  Clock clock(host_of(0));
  clock.op(kMain, kernel(100), Issue::kForward);
  clock.work(kSide, kernel(80, TimeBound::kNetwork), Clock::Engine::kNetwork);
  clock.work({0, 9}, kernel(60, TimeBound::kMemory), Clock::Engine::kCopyIn);
  const Timing timing = clock.timing();
  EXPECT_DOUBLE_EQ(timing.elapsed_ms, 0.1);
  EXPECT_DOUBLE_EQ(timing.network_ms, 0.08);
  EXPECT_DOUBLE_EQ(timing.hidden_network_ms, 0.08);
}

TEST(Clock, ACollectiveThatNothingHidesBoundsTheStep) {
  Clock clock(host_of(0));
  clock.op(kMain, kernel(10), Issue::kForward);
  clock.wait(kSide, clock.record(kMain));
  clock.work(kSide, kernel(80, TimeBound::kNetwork), Clock::Engine::kNetwork);
  clock.wait(kMain, clock.record(kSide));
  clock.op(kMain, kernel(10), Issue::kForward);
  const Timing timing = clock.timing();
  EXPECT_DOUBLE_EQ(timing.elapsed_ms, 0.1);
  EXPECT_DOUBLE_EQ(timing.hidden_network_ms, 0);
  EXPECT_EQ(timing.bound_by(), "network");
}

TEST(Clock, SynchronizingMakesTheHostWait) {
  Clock clock(host_of(1));
  clock.op(kMain, kernel(100), Issue::kForward);
  clock.synchronize_device(1);
  EXPECT_DOUBLE_EQ(clock.now_us(), 1);
  clock.synchronize_stream(kMain);
  EXPECT_DOUBLE_EQ(clock.now_us(), 101);
}

// Each op would look at all before it, which takes minutes.
TEST(Clock, AHostThatNeverWaitsCostsNoMoreForEachOp) {
  constexpr int kOps = 200'000;
  TimeRates rates = host_of(1);
  rates.event_us = 1;
  Clock clock(rates);
  for (int i = 0; i < kOps; ++i) clock.op(kMain, kernel(10), Issue::kForward);
  EXPECT_NEAR(clock.timing().gpu_busy_ms, kOps * 9 / 1e3, 1e-3);
  clock.synchronize_stream(kMain);
  clock.op(kMain, kernel(10), Issue::kForward);
  EXPECT_NEAR(clock.timing().gpu_busy_ms, (kOps + 1) * 9 / 1e3, 1e-3);
}

TEST(Clock, BusyTimeIsTheUnionOfManyIntervals) {
  Clock clock(host_of(3));
  for (int i = 0; i < 20000; ++i) clock.op(kMain, kernel(1), Issue::kForward);
  EXPECT_NEAR(clock.timing().gpu_busy_ms, 20, 1e-6);
}

TEST(Clock, AStepIsTheDifferenceOfTwoReadings) {
  Clock clock(host_of(1));
  clock.op(kMain, kernel(100), Issue::kForward);
  const Timing first = clock.timing();
  clock.op(kMain, kernel(50, TimeBound::kMemory), Issue::kForward);
  const Timing step = clock.timing() - first;
  EXPECT_DOUBLE_EQ(step.elapsed_ms, 0.05);
  EXPECT_EQ(step.bound_by(), "memory");
}

}  // namespace
}  // namespace peakline
