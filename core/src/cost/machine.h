// The GPU as the kernels' rules see it, and one op's kernels added up.
#pragma once

#include <algorithm>
#include <cmath>

#include <peakline/cost.h>

namespace peakline::cost {

inline double ceil_div(double a, double b) noexcept { return std::ceil(a / b); }

class Machine {
 public:
  explicit Machine(const DeviceProfile& gpu)
      : gpu_(gpu), rates_(gpu.time), sms_(static_cast<double>(gpu.sm_count)) {}

  [[nodiscard]] const DeviceProfile& gpu() const noexcept { return gpu_; }
  [[nodiscard]] const TimeRates& rates() const noexcept { return rates_; }
  [[nodiscard]] double sms() const noexcept { return sms_; }

  // `bytes` move, `footprint` of them are different ones. What fits into L2 is found there when the
  // previous kernel, or the previous pass, has just touched it.
  [[nodiscard]] double memory_us(double bytes, double footprint) const noexcept {
    const double hit = l2_share(footprint);
    return bytes * (hit / rates_.l2_gbps + (1 - hit) / (rates_.dram_gbps * rates_.dram_share)) /
           1e3;
  }
  [[nodiscard]] double memory_us(double bytes) const noexcept { return memory_us(bytes, bytes); }
  // The same for kernels whose blocks read a row, reduce it, and only then write.
  [[nodiscard]] double row_memory_us(double bytes) const noexcept {
    const double hit = l2_share(bytes);
    return bytes * (hit / rates_.l2_gbps + (1 - hit) / (rates_.dram_gbps * rates_.row_share)) / 1e3;
  }
  // `count` instructions of single threads, on all multiprocessors.
  [[nodiscard]] double instructions_us(double count) const noexcept {
    return count / (sms_ * kLanes * rates_.sm_clock_ghz) / 1e3;
  }

  // Lines are evicted before L2 is full, since addresses share sets; beyond its size a pass over
  // everything has evicted its own beginning.
  [[nodiscard]] double l2_share(double footprint) const noexcept {
    const double size = static_cast<double>(gpu_.l2_cache.raw());
    constexpr double kAllStays = 0.62;
    constexpr double kNothingStays = 0.9;
    if (size <= 0) return 0;
    return std::clamp((kNothingStays - footprint / size) / (kNothingStays - kAllStays), 0.0, 1.0);
  }

 private:
  static constexpr double kLanes = 128;  // of a multiprocessor

  const DeviceProfile& gpu_;
  const TimeRates& rates_;
  double sms_;
};

// What one kernel needs. It takes the longest of these, and its start.
struct Kernel {
  double compute_us = 0;
  double memory_us = 0;
  double latency_us = 0;  // beside the empty kernel's
};

class OpTimer {
 public:
  explicit OpTimer(const Machine& machine) : machine_(machine) {}

  void add(const Kernel& kernel, double bytes = 0, double flops = 0) {
    const double work = std::max(kernel.compute_us, kernel.memory_us);
    const double fixed = machine_.rates().kernel_us + kernel.latency_us;
    time_.us += work + fixed;
    time_.bytes += bytes;
    time_.flops += flops;
    ++time_.kernels;
    if (work + fixed <= longest_) return;
    longest_ = work + fixed;
    if (fixed > work)
      time_.bound = TimeBound::kLatency;
    else
      time_.bound = kernel.compute_us > kernel.memory_us ? TimeBound::kCompute : TimeBound::kMemory;
  }
  // A few bytes set to zero: shorter than an empty kernel, and as much to issue.
  void add_memset() {
    constexpr double kShare = 0.65;
    time_.us += kShare * machine_.rates().kernel_us;
    ++time_.kernels;
  }
  void guess() noexcept { time_.guessed = true; }
  [[nodiscard]] const OpTime& time() const noexcept { return time_; }
  [[nodiscard]] const Machine& machine() const noexcept { return machine_; }

 private:
  const Machine& machine_;
  OpTime time_;
  double longest_ = 0;
};

}  // namespace peakline::cost
