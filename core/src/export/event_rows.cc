#include <string>

#include "export/rows.h"
#include "ledger/era_name.h"

namespace peakline {
namespace {

// The columns that depend on the kind of event; what a kind does not have stays empty.
struct Fields {
  std::string_view kind;
  std::optional<BlockId> block;
  std::optional<DeviceId> device;
  std::optional<StreamId> stream;
  Address address;
  std::optional<Bytes> bytes;
  std::optional<Bytes> requested;
  OpId op;
  ModuleId module;
  std::string_view phase;
  std::optional<CategoryId> category;
  NameId name;
  std::string detail;
};

// One overload per kind of event.
struct Describe {
  const Dictionary& words;
  Fields& out;

  void operator()(const OpBegin& e) const { out.kind = "op_begin", out.op = e.op; }
  void operator()(const OpEnd&) const { out.kind = "op_end"; }
  void operator()(const Alloc& e) const {
    out.kind = "alloc";
    out.block = e.block;
    out.device = e.device;
    out.stream = e.stream;
    out.address = e.address;
    out.bytes = e.bytes;
    out.requested = e.requested;
  }
  void operator()(const Free& e) const { out.kind = "free", out.block = e.block; }
  void operator()(const FreeCompleted& e) const {
    out.kind = "free_completed", out.block = e.block;
  }
  void operator()(const Resize& e) const {
    out.kind = "resize", out.block = e.block, out.bytes = e.bytes;
  }
  void operator()(const Label& e) const {
    out.kind = "label";
    out.block = e.block;
    out.category = e.category;
    out.module = e.module;
    out.name = e.name;
  }
  void operator()(const Sureness& e) const {
    out.kind = "sureness";
    out.block = e.block;
    out.detail = kCertaintyNames[static_cast<std::size_t>(e.certainty)];
  }
  void operator()(const CallStack& e) const {
    out.kind = "call_stack";
    const CodeLine& line = words.line(words.own_line(e.stack));
    out.detail = std::string(words.name(line.file)) + ":" + std::to_string(line.line);
  }
  void operator()(const RegionBegin& e) const { out.kind = "region_begin", out.name = e.name; }
  void operator()(const RegionEnd&) const { out.kind = "region_end"; }
  void operator()(const ModuleEnter& e) const {
    out.kind = "module_enter", out.module = e.module, out.phase = pass_name(e.pass);
  }
  void operator()(const ModuleLeave& e) const {
    out.kind = "module_leave", out.module = e.module, out.phase = pass_name(e.pass);
  }
  void operator()(const PhaseBegin& e) const {
    out.kind = "phase_begin", out.phase = phase_name(e.phase);
  }
  void operator()(const PhaseEnd& e) const {
    out.kind = "phase_end", out.phase = phase_name(e.phase);
  }
  void operator()(const StepEnd&) const { out.kind = "step_end"; }
  void operator()(const Marker& e) const { out.kind = "marker", out.name = e.name; }
  void operator()(const Collective& e) const {
    out.kind = "collective";
    out.name = e.name;
    out.bytes = e.bytes;
    out.detail = words.name(e.group);
  }
  void operator()(const StreamUse& e) const {
    out.kind = "stream_use", out.block = e.block;
    if (e.stream != kUnknownStream) out.stream = e.stream;
  }
  void operator()(const SegmentAlloc& e) const {
    out.kind = "segment_alloc";
    out.device = e.device;
    out.stream = e.stream;
    out.address = e.address;
    out.bytes = e.bytes;
  }
  void operator()(const SegmentFree& e) const {
    out.kind = "segment_free";
    out.device = e.device;
    out.address = e.address;
    out.bytes = e.bytes;
  }
  void operator()(const Reserved& e) const {
    out.kind = "reserved", out.device = e.device, out.bytes = e.bytes;
  }
  void operator()(const EmptyCache& e) const { out.kind = "empty_cache", out.device = e.device; }
  void operator()(const OutOfMemory& e) const {
    out.kind = "out_of_memory";
    out.device = e.device;
    out.requested = e.requested;
    out.detail = e.kind == OutOfMemory::Kind::kFailed ? "failed" : "retry";
  }
  void operator()(const Lost& e) const {
    out.kind = "lost";
    out.name = e.what;
    out.detail = std::to_string(e.count);
  }
};

void write(const Event& event, std::uint64_t index, const Dictionary& words, std::int64_t rank,
           Row& row, TableWriter& writer) {
  Fields f;
  visit_event(Describe{words, f}, event.body);
  row.number(rank).count(index).time(event.time).text(words.thread(event.thread)).text(f.kind);
  f.block ? row.count(f.block->raw()) : row.nothing();
  f.device ? row.text(words.device(*f.device).name) : row.nothing();
  f.stream ? row.count(f.stream->raw()) : row.nothing();
  row.address(f.address).bytes(f.bytes).bytes(f.requested);
  row.text(words.op(f.op)).text(words.module(f.module).path).text(f.phase);
  f.category ? row.text(words.category(*f.category).name) : row.nothing();
  row.text(words.name(f.name)).text(f.detail).write(writer);
}

}  // namespace

Status write_events(TraceReader& reader, std::int64_t rank, TableWriter& writer) {
  Row row;
  std::uint64_t index = 0;
  while (writer.status().ok()) {
    const Result<std::span<const Event>> events = reader.next();
    if (!events.ok()) return events.status();
    if (events->empty()) break;
    for (const Event& event : *events) {
      write(event, index++, reader.dictionary(), rank, row, writer);
    }
  }
  return {};
}

}  // namespace peakline
