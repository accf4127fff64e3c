// Everything that the HTML report shows, as data: the summary, and beside it what was alive when.
// Levels of detail keep it small however long the recording is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <peakline/dictionary.h>
#include <peakline/diff.h>
#include <peakline/event.h>
#include <peakline/import.h>
#include <peakline/status.h>
#include <peakline/summary.h>
#include <peakline/units.h>

namespace peakline {

// Bounds of a report. What does not fit is shown more coarsely, and the report says how coarsely.
struct ReportOptions {
  std::size_t overview_points = 2048;   // over the whole run, each at the highest of its stretch
  std::size_t window_points = 768;      // more of them within a few steps of interest
  std::size_t step_peaks = 512;         // steps whose peak is a point of its own
  std::size_t alive_changes = 400'000;  // of what is alive, over all points and devices
  std::size_t spans = 20'000;           // module calls, phases and steps that are drawn
  std::size_t marks = 1'000;
  std::size_t modules = 20'000;
  std::size_t ops = 5'000;
  std::size_t steps = 20'000;
  std::size_t lines = 5'000;
  std::size_t map_blocks = 30'000;  // drawn in a map of the segments
};

// A point of a device's timeline: the state after `event`.
struct ReportPoint {
  std::uint64_t event = 0;
  TimeNs time;
  Bytes allocated;
  Bytes lowest;  // since the point before
  Bytes highest;
  Bytes reserved;                  // highest since the point before
  std::vector<Bytes> by_category;  // by DeviceReport::categories; sums to `allocated`
  bool has_alive = false;          // what is alive is known exactly here
};

// Who holds memory: a module, the op that allocated it, where the program asked for it (in backward:
// where it made the forward call), and what it is for.
struct AliveKey {
  ModuleId module;
  OpId op;
  CategoryId category;
  StackId stack;
};

// `bytes` more (or fewer) belong to `key` at `point` than at the last point with has_alive before.
struct AliveChange {
  std::uint32_t point = 0;
  std::uint32_t key = 0;
  Bytes bytes;
};

// A block in a segment of the allocator, for drawing: neighbours that do not matter are one.
struct MapBlock {
  Bytes offset;  // from the segment's start
  Bytes bytes;
  CategoryId category;
};

struct MapSegment {
  Address address;
  Bytes bytes;
  Bytes allocated;
  StreamId stream;
  std::vector<MapBlock> blocks;  // by offset; what lies between them is free
};

// The allocator's segments at one moment.
struct SegmentMap {
  std::string title;  // which moment: "peak" or "reserved"
  std::uint64_t event = 0;
  TimeNs time;
  bool simulated = false;  // the recording has no segments; the simulated allocator's are shown
  Bytes reserved;
  Bytes allocated;
  Bytes largest_free;                // free bytes in one piece
  std::vector<MapSegment> segments;  // by address
  std::size_t segments_left_out = 0;
};

struct DeviceReport {
  std::string name;
  Bytes total;  // the device's memory; 0 when not known
  std::vector<std::string> categories;
  std::vector<ReportPoint> points;
  std::vector<AliveKey> keys;
  std::vector<AliveChange> changes;  // by point, then key
  std::uint64_t alive_every = 0;     // events between points with has_alive, about, outside windows
  std::vector<SegmentMap> maps;
};

// A stretch of the run that has a name.
struct ReportSpan {
  enum class Kind : std::uint8_t { kStep, kPhase, kForward, kBackward, kRecompute };
  Kind kind = Kind::kStep;
  std::uint8_t depth = 0;     // of module calls inside module calls
  std::uint32_t subject = 0;  // the step's number, the Phase, the ModuleId
  std::uint64_t first = 0;    // events
  std::uint64_t last = 0;
};

struct ReportMark {
  std::uint64_t event = 0;
  std::string name;
};

struct Report {
  Summary summary;
  Dictionary dictionary;
  std::vector<DeviceReport> devices;  // as in `summary`
  std::vector<ReportSpan> spans;      // by first event
  std::uint64_t spans_left_out = 0;
  std::vector<ReportMark> marks;
  ReportOptions options;
};

// Reads the recording twice. Memory is bounded by the options, the live blocks and the words.
Result<Report> build_report(const SourceOpener& open, const ReportOptions& options = {});

// The object that the report's page shows; the page and this program agree on its form.
std::string report_to_json(const Report& report, std::string_view title);
std::string diff_page_json(const RunDiff& diff, std::string_view before, std::string_view after);

// `page` with `json` in it, so that no text of the JSON can end the script element that holds it.
// Fails when `page` has no place for data.
Result<std::string> fill_page(std::string_view page, std::string_view json);

}  // namespace peakline
