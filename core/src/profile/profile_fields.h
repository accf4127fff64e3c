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
