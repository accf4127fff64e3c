// What changed between two runs, by category, module, op and line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <peakline/status.h>
#include <peakline/summary.h>
#include <peakline/units.h>

namespace peakline {

// What a run held at the peak of its main device: little enough to keep as a baseline in a
// repository, and enough to say what grew. Each list sums to `peak_allocated`: what no module or no
// op held has a row of its own.
struct RunFacts {
  std::string device;
  std::string gpu;
  Bytes peak_allocated;
  std::optional<Bytes> peak_reserved;
  std::uint64_t ooms = 0;
  std::vector<NamedBytes> categories;  // both levels
  std::vector<NamedBytes> modules;     // by path; what each held itself
  std::vector<NamedBytes> ops;
  std::vector<NamedBytes> lines;  // "model.py:12 forward: its text"; empty without call stacks
};

inline constexpr std::string_view kOutsideModules = "(outside modules)";
inline constexpr std::string_view kNoLine = "(no line known)";
inline constexpr std::string_view kOutsideOps = "(outside ops)";

// A run in which nothing was allocated has facts of zero.
RunFacts facts_of(const Summary& summary);

// The baseline of `peakline check`, and how it is read back. Reading takes the JSON of
// `peakline show` too. `name` is for messages.
std::string facts_to_json(const RunFacts& facts);
Result<RunFacts> facts_from_json(std::string_view text, std::string_view name);

// One thing in both runs.
struct Change {
  std::string name;
  Bytes before;
  Bytes after;
  std::uint64_t members = 1;  // how many modules a group stands for

  [[nodiscard]] Bytes grown() const noexcept { return after - before; }
};

// Rows that are equal in both runs are left out; the largest change comes first, growth before
// shrinking. In each list the changes sum to that of `allocated`.
struct RunDiff {
  RunFacts before;
  RunFacts after;
  Change allocated;
  std::optional<Change> reserved;  // when both runs know it
  std::vector<Change> categories;
  std::vector<Change> modules;
  // The same with numbered siblings as one: "GPT.h.*.mlp".
  std::vector<Change> module_groups;
  std::vector<Change> ops;
  // When both runs know lines. They are matched by file, function and text, so that code above them
  // may change; those that have no text are matched by number.
  std::vector<Change> lines;
};

// Modules are matched by path; the names that wrappers add to it (checkpoint_wrapper, FSDP,
// torch.compile) are looked through, so a model can be compared with its wrapped self.
RunDiff diff_runs(RunFacts before, RunFacts after);

// One JSON object; keys and meanings are in docs/json.md.
std::string diff_to_json(const RunDiff& diff);

}  // namespace peakline
