#include "export/perfetto_writer.h"

#include <algorithm>

namespace peakline {
namespace {

// Field numbers of perfetto/protos/perfetto/trace.
namespace trace {
constexpr std::uint32_t kPacket = 1;
}
namespace packet {
constexpr std::uint32_t kTimestamp = 8, kSequence = 10, kTrackEvent = 11, kInterned = 12,
                        kSequenceFlags = 13, kTrackDescriptor = 60;
constexpr std::uint64_t kStateCleared = 1, kNeedsState = 2;
}  // namespace packet
namespace track {
constexpr std::uint32_t kUuid = 1, kName = 2, kProcess = 3, kParent = 5, kCounter = 8;
}
namespace process {
constexpr std::uint32_t kPid = 1, kName = 6;
}
namespace counter_unit {
constexpr std::uint32_t kUnit = 3;
constexpr std::uint64_t kSizeBytes = 3;
}  // namespace counter_unit
namespace event {
constexpr std::uint32_t kType = 9, kNameId = 10, kTrack = 11, kCounterValue = 30;
constexpr std::uint64_t kSliceBegin = 1, kSliceEnd = 2, kInstant = 3, kCounter = 4;
}  // namespace event
namespace interned {
constexpr std::uint32_t kEventNames = 2, kId = 1, kName = 2;
}

}  // namespace

TrackId PerfettoWriter::begin_process(std::int64_t rank, std::string_view name) {
  ++sequence_;
  tracks_ = 0;
  is_first_ = true;
  names_.clear();
  const TrackId id = sequence_ << 32 | ++tracks_;
  Proto facts;
  facts.number(process::kPid, static_cast<std::uint64_t>(rank) + 1);  // 0 is the idle task's
  facts.text(process::kName, name);
  Proto descriptor;
  descriptor.number(track::kUuid, id).text(track::kName, name).message(track::kProcess, facts);
  describe(descriptor);
  return id;
}

TrackId PerfettoWriter::track(TrackId parent, std::string_view name) {
  const TrackId id = sequence_ << 32 | ++tracks_;
  Proto descriptor;
  descriptor.number(track::kUuid, id).number(track::kParent, parent).text(track::kName, name);
  describe(descriptor);
  return id;
}

TrackId PerfettoWriter::counter_track(TrackId parent, std::string_view name) {
  const TrackId id = sequence_ << 32 | ++tracks_;
  Proto unit;
  unit.number(counter_unit::kUnit, counter_unit::kSizeBytes);
  Proto descriptor;
  descriptor.number(track::kUuid, id).number(track::kParent, parent).text(track::kName, name);
  descriptor.message(track::kCounter, unit);
  describe(descriptor);
  return id;
}

void PerfettoWriter::describe(const Proto& descriptor) {
  packet_.clear();
  packet_.message(packet::kTrackDescriptor, descriptor);
  write_packet();
}

void PerfettoWriter::slice_begin(TrackId track, TimeNs time, std::string_view name) {
  named_event(event::kSliceBegin, track, time, name);
}

void PerfettoWriter::mark(TrackId track, TimeNs time, std::string_view name) {
  named_event(event::kInstant, track, time, name);
}

void PerfettoWriter::slice_end(TrackId track, TimeNs time) {
  packet_.clear();
  event_.clear();
  event_.number(event::kType, event::kSliceEnd).number(event::kTrack, track);
  write(time);
}

void PerfettoWriter::counter(TrackId track, TimeNs time, Bytes value) {
  packet_.clear();
  event_.clear();
  event_.number(event::kType, event::kCounter).number(event::kTrack, track);
  event_.number(event::kCounterValue, static_cast<std::uint64_t>(value.raw()));
  write(time);
}

// Names are written once and go by number then: ops and modules repeat with every step.
void PerfettoWriter::named_event(std::uint64_t type, TrackId track, TimeNs time,
                                 std::string_view name) {
  packet_.clear();
  event_.clear();
  const auto [found, is_new] = names_.try_emplace(std::string(name), names_.size() + 1);
  if (is_new) {
    Proto word;
    word.number(interned::kId, found->second).text(interned::kName, name);
    Proto words;
    words.message(interned::kEventNames, word);
    packet_.message(packet::kInterned, words);
  }
  event_.number(event::kType, type).number(event::kTrack, track);
  event_.number(event::kNameId, found->second);
  write(time);
}

void PerfettoWriter::write(TimeNs time) {
  const std::int64_t ns = std::max<std::int64_t>(time.raw(), 0);
  packet_.number(packet::kTimestamp, static_cast<std::uint64_t>(ns));
  packet_.message(packet::kTrackEvent, event_);
  write_packet();
}

void PerfettoWriter::write_packet() {
  packet_.number(packet::kSequence, sequence_);
  packet_.number(packet::kSequenceFlags,
                 packet::kNeedsState | (is_first_ ? packet::kStateCleared : 0));
  is_first_ = false;
  file_part_.clear();
  file_part_.message(trace::kPacket, packet_);
  file_.add(file_part_.bytes());
}

}  // namespace peakline
