// The answers that people ask for first, as data: one read of a recording gives them all.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <peakline/certainty.h>
#include <peakline/dictionary.h>
#include <peakline/replay.h>
#include <peakline/status.h>
#include <peakline/trace.h>
#include <peakline/units.h>

namespace peakline {

struct NamedBytes {
  std::string name;
  Bytes bytes;
};

// A module and everything below it, at the device's peak.
struct ModuleRow {
  std::string path;
  std::string type;
  std::size_t depth = 0;                // 0 for a root module
  Bytes peak;                           // held at the device's peak by it and the modules below it
  Bytes own;                            // thereof by itself
  std::vector<NamedBytes> by_category;  // sums to `peak`
  Bytes highest_while_running;          // the device's total, over all its calls
  std::uint64_t forward_calls = 0;
};

struct OpRow {
  std::string name;
  std::uint64_t calls = 0;
  std::uint64_t allocations = 0;
  Bytes at_peak;    // held at the device's peak
  Bytes allocated;  // over the whole recording
  Bytes largest;    // single allocation
};

// A line of the program.
struct CodePlace {
  std::string file;
  std::uint32_t line = 0;
  std::string function;
  std::string text;  // empty when it is not known
};

// A line and what it allocated.
struct LineRow {
  CodePlace place;
  // Of what backward allocates, `place` is where the forward call was made, and this is who called
  // backward.
  std::optional<CodePlace> called_from = {};
  std::uint64_t allocations = 0;
  Bytes at_peak;                        // held at the device's peak
  Bytes allocated;                      // over the whole recording
  Bytes largest;                        // single allocation
  std::vector<NamedBytes> by_category;  // sums to `at_peak`
};

// A part of the program that it gave a name, with what lies inside it.
struct RegionRow {
  std::string path;  // "train / eval": the outermost first
  std::uint64_t entered = 0;
  Bytes at_peak;  // held at the device's peak, of what was allocated in it
  Bytes highest;  // the device's total while the program was in it
};

// In the warning of a summary about growth, between the device and the place.
inline constexpr std::string_view kGrowsWithEveryStep = " grows with every step: ";

// What keeps more with every step.
struct GrowthRow {
  std::optional<CodePlace> place = {};  // none: op and module say where
  std::string op;
  std::string module;
  Bytes kept;  // at the end of the last step, by blocks of earlier ones
  std::uint64_t blocks = 0;
  Bytes per_step;
  std::uint32_t first_step = 0;  // of those that left something; 1 is the first
  std::uint32_t last_step = 0;
  std::string holder;  // the variable that keeps them, where the run was asked for it
  std::string key;     // what the holder is called in the recording's facts
  std::vector<Address> examples = {};  // a few of the blocks, alive as the recording ends
};

// What grows on one device, and nothing else: for a run that is not over.
struct DeviceGrowth {
  std::string device;
  std::vector<GrowthRow> rows;  // largest first
};
struct GrowthSoFar {
  std::vector<DeviceGrowth> devices;
  bool suspects = false;  // one more step would show whether there is a leak
};
Result<GrowthSoFar> growth_so_far(TraceReader& reader);

// The allocation that failed last.
struct FailureRow {
  Bytes requested;
  Bytes allocated;  // at that moment
  Bytes reserved;
  std::uint32_t step = 0;  // 1 is the first
  std::string phase;
  std::string op;
  std::string module;
  std::vector<CodePlace> stack;         // innermost first
  std::vector<CodePlace> forward;       // in backward: of the forward call
  std::vector<NamedBytes> by_category;  // alive, largest first; sums to `allocated`
  std::vector<NamedBytes> by_module;    // by path, what each holds itself
  std::vector<LineRow> lines;           // alive, largest first: `at_peak` is what each holds
};

struct StepRow {
  Bytes peak_allocated;
  std::optional<Bytes> peak_reserved;
  std::uint64_t peak_event = 0;  // the first after which that much was allocated
};

struct TimelinePoint {
  std::uint64_t first_event = 0;
  TimeNs time;
  Bytes lowest;
  Bytes highest;
  Bytes reserved;
  std::uint64_t highest_event = 0;  // the first after which `highest` was allocated
  std::vector<Bytes> by_category;   // as the point's stretch began; by TimelineView::categories
};

// The timeline at the finest level that has at most `Options::timeline_points` points.
struct TimelineView {
  std::uint64_t events_per_point = 1;
  std::vector<std::string> categories;
  std::vector<TimelinePoint> points;
};

struct DeviceSummary {
  std::string name;
  std::string model;
  std::optional<Bytes> memory_limit;
  Bytes peak_allocated;
  std::optional<Bytes> peak_reserved;  // none when the producer could not see it
  Bytes allocated_at_end;
  std::uint64_t segments = 0;
  std::uint64_t retries = 0;
  std::uint64_t ooms = 0;
  std::optional<bool> fits;

  // The peak: when, where, and what was alive.
  std::uint64_t peak_event = 0;
  TimeNs peak_time;
  std::uint32_t peak_step = 0;  // 1 is the first
  std::string peak_phase;       // forward, recompute, backward, optimizer
  std::string peak_op;
  std::string peak_module;
  std::vector<NamedBytes> by_category;     // top level, largest first, sums to peak_allocated
  std::vector<NamedBytes> by_subcategory;  // both levels ("Parameter / Sharded"), largest first
  Bytes outside_modules;                   // held at the peak by no module
  // How surely those sizes are known, by Certainty; sums to peak_allocated. Only of producers that
  // work sizes out.
  std::optional<std::array<Bytes, kCertainties>> confidence;
  std::vector<ModuleRow> modules;     // depth first, in order of definition
  std::vector<OpRow> ops;             // largest at the peak first
  std::vector<CodePlace> peak_stack;  // where the peak's last block was asked for, innermost first
  std::vector<LineRow> lines;         // largest at the peak first; empty without call stacks
  std::vector<RegionRow> regions;
  std::vector<GrowthRow> growth;  // largest first
  std::optional<FailureRow> failure;

  std::vector<StepRow> steps;
  TimelineView timeline;
};

// A change that needs less, proven by playing the recording again (advice.h).
struct Saving {
  std::string what;     // "fused AdamW"
  std::string why;      // a sentence without a full stop
  std::string command;  // what to write
  Bytes before;         // reserved at the peak, simulated
  Bytes after;
};

struct Summary {
  RunInfo info;
  std::optional<std::string> allocator_conf;  // the run's settings; none when they are not known
  std::vector<DeviceSummary> devices;  // accelerators before the host, then largest peak first
  std::uint64_t events = 0;
  std::uint64_t steps_completed = 0;
  TimeNs duration;
  std::uint64_t unknown_values = 0;
  Bytes host_peak;
  std::vector<std::string> warnings;
  std::vector<Saving> advice;  // where somebody asked for it

  // The device that the run is about; null when nothing was ever allocated.
  [[nodiscard]] const DeviceSummary* main_device() const noexcept {
    return devices.empty() ? nullptr : &devices.front();
  }
};

struct SummaryOptions {
  std::size_t timeline_points = 512;
  std::vector<Pass*> also = {};  // more questions for the same read; they outlive it
};

// The end of a path, enough to know a file by: "models/llama.py".
std::string short_path(std::string_view path);

// Reads all of `reader`. Memory grows with modules, ops, steps and live blocks, not with events.
Result<Summary> summarize(TraceReader& reader, const SummaryOptions& options = {});

// One JSON object; keys and meanings are in docs/json.md.
std::string summary_to_json(const Summary& summary);

// A table as CSV with a header line: "categories", "modules", "ops", "lines", "regions", "steps" or
// "timeline".
Result<std::string> summary_to_csv(const Summary& summary, std::string_view table);

}  // namespace peakline
