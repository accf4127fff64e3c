// What a run would have done under other allocator settings or with less memory, from its
// recording.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <peakline/allocator.h>
#include <peakline/diagnostics.h>
#include <peakline/import.h>
#include <peakline/status.h>
#include <peakline/summary.h>
#include <peakline/trace.h>
#include <peakline/units.h>

namespace peakline {

struct SimulateOptions {
  // As in PYTORCH_CUDA_ALLOC_CONF. None: those of the run, where the recording keeps them.
  std::optional<std::string> conf;
  std::optional<TorchVersion> torch;  // none: the recording's, else the newest that is supported
  // Caps reserved bytes, as set_per_process_memory_fraction does. None: as the run was capped.
  std::optional<Bytes> memory;
  std::string device;    // "cuda:0"; empty: the one with the most allocated bytes
  bool compare = false;  // try the sensible settings, too
  bool empty_cache_each_step =
      false;  // as if the program called torch.cuda.empty_cache() after each
};

// Where reserved memory goes at one moment. The four parts sum to `reserved`.
struct MemoryUse {
  Bytes reserved;
  Bytes requested;  // what the program asked for
  Bytes rounding;   // block sizes above that
  Bytes waiting;    // freed, but other streams still use it
  Bytes cached;     // free inside segments: what fragmentation and caching cost
};

// The first allocation that failed.
struct OomReport {
  OutOfMemoryInfo info;
  std::string message;  // torch's own words
  std::uint64_t event = 0;
  TimeNs time;
  std::uint32_t step = 0;  // 1 is the first
  std::string op;
  std::string module;
  MemoryUse use;
  Bytes largest_free_block;
  // The request would have fit into the free bytes if they had been in one piece.
  bool only_fragmented = false;
  std::vector<NamedBytes> by_category;  // what was alive, largest first
  std::vector<NamedBytes> by_module;    // likewise, by the module that allocated it
};

// One setting, tried.
struct SettingOutcome {
  std::string conf;
  bool fits = true;
  Bytes peak_reserved;  // up to the failure, if it failed
  Bytes peak_allocated;
  MemoryUse at_peak;           // when reserved bytes were first highest
  std::uint64_t segments = 0;  // taken from the driver
  std::uint64_t device_frees = 0;
  std::uint64_t retries = 0;
  std::uint64_t ooms = 0;
};

// How the simulation compares with the segments that the recording itself names.
struct RecordedSegments {
  Bytes peak_reserved;
  std::uint64_t changes = 0;  // segments taken and returned
  std::uint64_t same = 0;  // how many of them the simulation did in the same order, from the start
  bool equal = false;      // all of them, and none more
};

// Where the settings that were simulated come from.
enum class SettingsSource : std::uint8_t { kDefault, kGiven, kRecording };

struct SimulationResult {
  std::string device;
  std::string gpu;
  std::string torch;
  std::optional<Bytes> memory;
  SettingsSource settings_from = SettingsSource::kDefault;
  SettingOutcome outcome;
  AllocatorStats stats;  // at the end, or at the failure
  std::optional<OomReport> oom;
  std::optional<RecordedSegments> recorded;
  // With `compare`, or after a failure: other settings, best first (fits, then fewer retries, then
  // less reserved). Each adds something to the settings that were simulated; none repeats them.
  std::vector<SettingOutcome> others;
  Diagnostics diagnostics;
  std::vector<std::string> warnings;
};

// Replays a recording, an allocator CSV or a torch snapshot through the simulated allocator.
Result<SimulationResult> simulate_file(const std::string& path, const SimulateOptions& options);
// The same for bytes that can be opened: once, or twice for a snapshot.
Result<SimulationResult> simulate(const SourceOpener& open, const SimulateOptions& options);

// The settings that `compare` tries. Some make sense only under a limit.
std::vector<std::string> sensible_settings(TorchVersion torch, bool limited);

std::string simulation_to_json(const SimulationResult& result);

}  // namespace peakline
