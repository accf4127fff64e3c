// The numbers of a profile as a list, so that reading, writing and checking cannot disagree.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <variant>

#include <peakline/device_profile.h>

namespace peakline::profile {

// One number of the file. Ranges are generous: they stop nonsense, not new hardware.
struct Field {
  std::string_view key;
  std::variant<int DeviceProfile::*, Bytes DeviceProfile::*> member;
  std::int64_t least;
  std::int64_t most;
  bool required;
};

inline constexpr std::int64_t kMostMemory = std::int64_t{1} << 46;

inline constexpr std::array<Field, 13> kFields{{
    {"sm_count", &DeviceProfile::sm_count, 1, 4096, true},
    {"max_threads_per_sm", &DeviceProfile::max_threads_per_sm, 32, 65536, true},
    {"max_threads_per_block", &DeviceProfile::max_threads_per_block, 32, 65536, false},
    {"warp_size", &DeviceProfile::warp_size, 1, 1024, false},
    {"registers_per_sm", &DeviceProfile::registers_per_sm, 1024, 1 << 24, false},
    {"total_memory", &DeviceProfile::total_memory, 1 << 20, kMostMemory, true},
    {"l2_cache", &DeviceProfile::l2_cache, 0, kMostMemory, false},
    {"shared_memory_per_block", &DeviceProfile::shared_memory_per_block, 1024, 1 << 30, true},
    {"shared_memory_per_block_opt_in", &DeviceProfile::shared_memory_per_block_opt_in, 1024,
     1 << 30, true},
    {"shared_memory_per_sm", &DeviceProfile::shared_memory_per_sm, 1024, 1 << 30, true},
    {"context", &DeviceProfile::context, 0, kMostMemory, true},
    {"context_with_cublas", &DeviceProfile::context_with_cublas, 0, kMostMemory, true},
    {"context_with_cudnn", &DeviceProfile::context_with_cudnn, 0, kMostMemory, true},
}};

// A rate or a time. Not required: what a file leaves out is derived (rates.cc).
struct Rate {
  std::string_view key;
  double TimeRates::*member;
  double least;
  double most;
};

inline constexpr std::array<Rate, 33> kRates{{
    {"tensor16_tflops", &TimeRates::tensor16_tflops, 0.01, 1e6},
    {"tensor8_tflops", &TimeRates::tensor8_tflops, 0.01, 1e6},
    {"tf32_tflops", &TimeRates::tf32_tflops, 0.01, 1e6},
    {"f32_tflops", &TimeRates::f32_tflops, 0.01, 1e6},
    {"f64_tflops", &TimeRates::f64_tflops, 0.001, 1e6},
    {"tensor_share", &TimeRates::tensor_share, 0.01, 1},
    {"vector_share", &TimeRates::vector_share, 0.01, 1},
    {"sm_clock_ghz", &TimeRates::sm_clock_ghz, 0.1, 10},
    {"dram_gbps", &TimeRates::dram_gbps, 1, 1e6},
    {"dram_share", &TimeRates::dram_share, 0.01, 1},
    {"row_share", &TimeRates::row_share, 0.01, 1},
    {"l2_gbps", &TimeRates::l2_gbps, 1, 1e6},
    {"sm_gbps", &TimeRates::sm_gbps, 0.1, 1e5},
    {"kernel_us", &TimeRates::kernel_us, 0, 1e3},
    {"gemm_us", &TimeRates::gemm_us, 0, 1e3},
    {"reduce_us", &TimeRates::reduce_us, 0, 1e3},
    {"block_us", &TimeRates::block_us, 0, 1e3},
    {"event_us", &TimeRates::event_us, 0, 1e3},
    {"pcie_gbps", &TimeRates::pcie_gbps, 0.1, 1e5},
    {"pcie_us", &TimeRates::pcie_us, 0, 1e4},
    {"pageable_gbps", &TimeRates::pageable_gbps, 0.01, 1e5},
    {"nvlink_gbps", &TimeRates::nvlink_gbps, 0.1, 1e5},
    {"nvlink_us", &TimeRates::nvlink_us, 0, 1e4},
    {"network_gbps", &TimeRates::network_gbps, 0.1, 1e5},
    {"network_us", &TimeRates::network_us, 0, 1e4},
    {"host_op_us", &TimeRates::host_op_us, 0, 1e4},
    {"host_plain_us", &TimeRates::host_plain_us, 0, 1e4},
    {"host_backward_us", &TimeRates::host_backward_us, 0, 1e4},
    {"host_python_us", &TimeRates::host_python_us, 0, 1e4},
    {"host_launch_us", &TimeRates::host_launch_us, 0, 1e4},
    {"host_sync_us", &TimeRates::host_sync_us, 0, 1e4},
    {"host_gbps", &TimeRates::host_gbps, 0.01, 1e5},
    {"host_random_ns", &TimeRates::host_random_ns, 0, 1e4},
}};

// Fills in the rates that were not given, and says that they are estimated.
void complete_rates(DeviceProfile& profile);

inline constexpr std::string_view kCapability = "compute_capability";

struct SourceTable {
  std::string_view table;
  NumberSource source;
};
inline constexpr std::array<SourceTable, 3> kSources{{
    {"measured", NumberSource::kMeasured},
    {"public", NumberSource::kPublic},
    {"estimated", NumberSource::kEstimated},
}};

// The table of versions that were measured.
inline constexpr std::string_view kVersions = "versions";

struct VersionList {
  std::string_view key;
  std::vector<std::string> DeviceProfile::MeasuredVersions::*member;
};
inline constexpr std::array<VersionList, 2> kVersionLists{{
    {"torch", &DeviceProfile::MeasuredVersions::torch},
    {"cudnn", &DeviceProfile::MeasuredVersions::cudnn},
}};

}  // namespace peakline::profile
