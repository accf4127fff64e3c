// Packets of a Perfetto trace: tracks, slices, marks and counters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include <peakline/units.h>

#include "export/buffered.h"
#include "export/proto.h"

namespace peakline {

// A line of the trace on which things happen.
using TrackId = std::uint64_t;

// Writes one sequence of packets for each recording. Texts are UTF-8. Not thread-safe.
class PerfettoWriter {
 public:
  explicit PerfettoWriter(std::unique_ptr<Sink> sink) : file_(std::move(sink)) {}

  // What follows is this process's; gives its track.
  TrackId begin_process(std::int64_t rank, std::string_view name);
  TrackId track(TrackId parent, std::string_view name);
  TrackId counter_track(TrackId parent, std::string_view name);

  void slice_begin(TrackId track, TimeNs time, std::string_view name);
  void slice_end(TrackId track, TimeNs time);
  void mark(TrackId track, TimeNs time, std::string_view name);
  void counter(TrackId track, TimeNs time, Bytes value);

  Status finish() { return file_.finish(); }
  [[nodiscard]] const Status& status() const noexcept { return file_.status(); }

 private:
  void describe(const Proto& descriptor);
  void named_event(std::uint64_t type, TrackId track, TimeNs time, std::string_view name);
  void write(TimeNs time);  // packet_ with event_ in it
  void write_packet();

  Buffered file_;
  std::uint64_t sequence_ = 0;
  std::uint64_t tracks_ = 0;                              // of this process
  bool is_first_ = true;                                  // packet of this sequence
  std::unordered_map<std::string, std::uint64_t> names_;  // of this sequence
  Proto packet_;
  Proto event_;
  Proto file_part_;
};

}  // namespace peakline
