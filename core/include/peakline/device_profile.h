// What peakline knows about one kind of GPU: the numbers that decide which kernels run and how much
// memory libraries take, each with where it comes from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <peakline/device_model.h>
#include <peakline/status.h>
#include <peakline/time_rates.h>
#include <peakline/units.h>

namespace peakline {

// How far a number can be trusted.
enum class NumberSource : std::uint8_t {
  kMeasured,   // read on such a GPU, by us or by `peakline calibrate`
  kPublic,     // from the vendor's documents or from what users printed
  kEstimated,  // nobody told: derived from a GPU that is alike
};

// A GPU model. A value: copy it freely.
struct DeviceProfile {
  std::string id;                    // what people type: "h200"
  std::vector<std::string> aliases;  // other words for it, in small letters: "a100"
  std::string name;                  // what torch.cuda.get_device_name says: "NVIDIA H200"

  int major = 0;  // compute capability
  int minor = 0;
  int sm_count = 0;
  int max_threads_per_sm = 0;
  int max_threads_per_block = 1024;
  int warp_size = 32;
  int registers_per_sm = 65536;

  Bytes total_memory;  // torch.cuda.get_device_properties(...).total_memory
  Bytes l2_cache;
  Bytes shared_memory_per_block;         // without opting in
  Bytes shared_memory_per_block_opt_in;  // at most
  Bytes shared_memory_per_sm;

  // What the process takes outside torch's allocator: after the first kernel, and then in all, after
  // the first cuBLAS call and after the first cuDNN call too.
  Bytes context;
  Bytes context_with_cublas;
  Bytes context_with_cudnn;

  TimeRates time;  // complete: what a file leaves out is derived from its other numbers

  // The keys of the numbers that are not measured, with their source.
  struct Provenance {
    std::string key;
    NumberSource source;
  };
  std::vector<Provenance> provenance;

  // The versions with which the kernels' memory was measured on such a GPU, as "2.11"; none where it
  // never was.
  struct MeasuredVersions {
    std::vector<std::string> torch;
    std::vector<std::string> cudnn;
  };
  MeasuredVersions measured_versions;

  // `version` may have more parts than the ones that were measured: "9.19.0".
  [[nodiscard]] bool measured_with_torch(std::string_view version) const noexcept;
  [[nodiscard]] bool measured_with_cudnn(std::string_view version) const noexcept;

  [[nodiscard]] int capability() const noexcept { return major * 10 + minor; }
  // The most that torch's allocator can have on an otherwise empty GPU.
  [[nodiscard]] Bytes usable_memory() const noexcept { return total_memory - context_with_cudnn; }
  [[nodiscard]] NumberSource source_of(std::string_view key) const noexcept;
};

// The profiles that come with peakline, in the order of core/data/gpus.toml.
const std::vector<DeviceProfile>& known_profiles();

// `name_or_path` is a known id, alias or full name, in any case ("h200", "4090", "NVIDIA H200"), or the path of a
// TOML file with one GPU, recognised by a '/' or by ending in ".toml". Files are not trusted.
Result<DeviceProfile> load_profile(std::string_view name_or_path);

// Reads the text of such a file; `where` names it in errors.
Result<DeviceProfile> parse_profile(std::string_view text, std::string_view where);

// The file that parse_profile reads. Numbers stand under the table that tells their source.
std::string to_toml(const DeviceProfile& profile);

// The device under the allocator simulator: its memory, less what the process takes outside.
DriverOptions driver_options(const DeviceProfile& profile);

}  // namespace peakline
