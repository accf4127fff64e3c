#include "trace/encoder.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace peakline::trace {

using coding::zigzag;

void ColumnBuffer::grow(std::size_t bytes) {
  const std::size_t capacity = std::max({size_ + bytes, 2 * capacity_, std::size_t{4096}});
  auto data = std::make_unique_for_overwrite<std::uint8_t[]>(capacity);
  if (size_ > 0) std::memcpy(data.get(), data_.get(), size_);
  data_ = std::move(data);
  capacity_ = capacity;
}

void ColumnBuffer::text(std::string_view text) {
  make_room(coding::kMaxVarint + text.size());
  varint(text.size());
  if (!text.empty()) std::memcpy(&data_[size_], text.data(), text.size());
  size_ += text.size();
}

namespace {

std::size_t varint_bytes(std::uint64_t value) {
  std::uint8_t buffer[coding::kMaxVarint];
  return static_cast<std::size_t>(coding::put_varint(buffer, value) - buffer);
}

}  // namespace

// One overload per kind of event.
struct EventEncoder::BodyEncoder {
  ColumnBuffer& records;
  ColumnBuffer& addresses;
  DeltaState& state;
  std::uint8_t time_flag;

  template <class Body>
  void tag(unsigned flags = 0) {
    records.byte(static_cast<std::uint8_t>(kKindOf<Body> | time_flag | flags));
  }
  void signed_number(Bytes bytes) { records.varint(zigzag(bytes.raw())); }
  void distance(BlockId block) { records.varint(state.newest - block.raw()); }

  void operator()(const OpBegin& e) {
    tag<OpBegin>();
    records.varint(e.op.raw());
  }
  void operator()(const OpEnd&) { tag<OpEnd>(); }

  void operator()(const Alloc& e) {
    const auto bytes = static_cast<std::uint64_t>(e.bytes.raw());
    const bool in_units = e.bytes.raw() >= 0 && bytes % kSizeUnit == 0;
    const std::uint64_t moved = e.address.raw() - state.address_guess;
    const std::uint8_t extra = alloc_extras(e, moved);
    tag<Alloc>((extra != 0 ? kFlagA : 0u) | (in_units ? kFlagB : 0u));
    if (extra != 0) alloc_extra_fields(e, extra);
    records.varint(in_units ? bytes / kSizeUnit : zigzag(e.bytes.raw()));
    state.newest = e.block.raw();
    if (extra & alloc_extra::kNoAddress) return;
    const auto distance = static_cast<std::int64_t>(moved);
    const bool unaligned = extra & alloc_extra::kUnalignedAddress;
    addresses.varint(
        zigzag(unaligned ? distance : distance / static_cast<std::int64_t>(kAddressUnit)));
    state.placed(e.address.raw(), bytes);
  }

  std::uint8_t alloc_extras(const Alloc& e, std::uint64_t moved) const {
    unsigned extra = 0;
    if (e.requested != e.bytes) extra |= alloc_extra::kRequested;
    if (e.block.raw() != state.newest + 1) extra |= alloc_extra::kBlock;
    if (e.stream.raw() != state.stream) extra |= alloc_extra::kStream;
    if (e.device.raw() != state.device) extra |= alloc_extra::kDevice;
    if (e.address.raw() == 0) {
      extra |= alloc_extra::kNoAddress;
    } else if (moved % kAddressUnit != 0) {
      extra |= alloc_extra::kUnalignedAddress;
    }
    return static_cast<std::uint8_t>(extra);
  }

  void alloc_extra_fields(const Alloc& e, std::uint8_t extra) {
    records.byte(extra);
    if (extra & alloc_extra::kRequested) {
      // Unsigned, for a difference that does not fit wraps around and back.
      const auto saved =
          static_cast<std::uint64_t>(e.bytes.raw()) - static_cast<std::uint64_t>(e.requested.raw());
      records.varint(zigzag(static_cast<std::int64_t>(saved)));
    }
    if (extra & alloc_extra::kBlock) {
      records.varint(zigzag(static_cast<std::int64_t>(e.block.raw() - state.newest)));
    }
    if (extra & alloc_extra::kStream) records.varint(state.stream = e.stream.raw());
    if (extra & alloc_extra::kDevice) records.byte(state.device = e.device.raw());
  }

  void operator()(const Free& e) {
    // Temporaries die young; backward frees in the reverse order of forward.
    const std::uint64_t age = state.newest - e.block.raw();
    const std::uint64_t step = zigzag(static_cast<std::int64_t>(e.block.raw() - state.freed));
    tag<Free>(step < age ? kFlagA : 0u);
    records.varint(std::min(age, step));
    state.freed = e.block.raw();
  }
  void operator()(const FreeCompleted& e) {
    tag<FreeCompleted>();
    distance(e.block);
  }
  void operator()(const Resize& e) {
    tag<Resize>();
    distance(e.block);
    signed_number(e.bytes);
  }
  void operator()(const Label& e) {
    const std::uint64_t age = state.newest - e.block.raw();
    const std::uint64_t step = zigzag(static_cast<std::int64_t>(e.block.raw() - state.labelled));
    const bool owned = e.module.raw() != 0 || e.name.raw() != 0;
    tag<Label>((step < age ? kFlagA : 0u) | (owned ? kFlagB : 0u));
    records.varint(std::min(age, step));
    records.byte(e.category.raw());
    if (owned) {
      records.varint(e.module.raw());
      records.varint(e.name.raw());
    }
    state.labelled = e.block.raw();
  }
  void operator()(const ModuleEnter& e) {
    tag<ModuleEnter>((static_cast<unsigned>(e.pass) & 3u) << kPassShift);
    records.varint(e.module.raw());
  }
  void operator()(const ModuleLeave& e) {
    tag<ModuleLeave>((static_cast<unsigned>(e.pass) & 3u) << kPassShift);
    records.varint(e.module.raw());
  }
  void operator()(const PhaseBegin& e) {
    tag<PhaseBegin>((static_cast<unsigned>(e.phase) & 3u) << kPassShift);
  }
  void operator()(const PhaseEnd& e) {
    tag<PhaseEnd>((static_cast<unsigned>(e.phase) & 3u) << kPassShift);
  }
  void operator()(const StepEnd&) { tag<StepEnd>(); }
  void operator()(const Marker& e) {
    tag<Marker>();
    records.varint(e.name.raw());
  }
  void operator()(const Collective& e) {
    tag<Collective>();
    records.varint(e.name.raw());
    records.varint(e.group.raw());
    signed_number(e.bytes);
  }
  void operator()(const StreamUse& e) {
    tag<StreamUse>();
    distance(e.block);
    records.varint(e.stream.raw());
  }
  void operator()(const SegmentAlloc& e) {
    tag<SegmentAlloc>();
    records.varint(e.address.raw());
    signed_number(e.bytes);
    records.varint(e.stream.raw());
    records.byte(e.device.raw());
  }
  void operator()(const SegmentFree& e) {
    tag<SegmentFree>();
    records.varint(e.address.raw());
    signed_number(e.bytes);
    records.byte(e.device.raw());
  }
  void operator()(const Reserved& e) {
    tag<Reserved>();
    signed_number(e.bytes);
    records.byte(e.device.raw());
  }
  void operator()(const EmptyCache& e) {
    tag<EmptyCache>();
    records.byte(e.device.raw());
  }
  void operator()(const OutOfMemory& e) {
    tag<OutOfMemory>(e.kind == OutOfMemory::Kind::kFailed ? kFlagA : 0u);
    signed_number(e.requested);
    records.byte(e.device.raw());
  }
  void operator()(const Lost& e) {
    tag<Lost>();
    records.varint(e.what.raw());
    records.varint(e.count);
  }
  void operator()(const Sureness& e) {
    const std::uint64_t age = state.newest - e.block.raw();
    records.byte(static_cast<std::uint8_t>(RecordKind::kSureness) | time_flag);
    records.varint(varint_bytes(age) + 1);
    records.varint(age);
    records.byte(static_cast<std::uint8_t>(e.certainty));
  }
  void later_tag(RecordKind kind, unsigned flags = 0) {
    records.byte(static_cast<std::uint8_t>(static_cast<unsigned>(kind) | time_flag | flags));
  }
  void operator()(const CallStack& e) {
    const bool in_backward = e.forward != StackId{};
    later_tag(RecordKind::kCallStack, in_backward ? kFlagA : 0u);
    std::size_t length = varint_bytes(e.stack.raw());
    if (in_backward) length += varint_bytes(e.forward.raw());
    records.byte(static_cast<std::uint8_t>(length));
    records.varint(e.stack.raw());
    if (in_backward) records.varint(e.forward.raw());
  }
  void operator()(const RegionBegin& e) {
    later_tag(RecordKind::kLaterEvent);
    records.byte(static_cast<std::uint8_t>(1 + varint_bytes(e.name.raw())));
    records.byte(static_cast<std::uint8_t>(LaterEvent::kRegionBegin));
    records.varint(e.name.raw());
  }
  void operator()(const RegionEnd&) {
    later_tag(RecordKind::kLaterEvent);
    records.byte(1);
    records.byte(static_cast<std::uint8_t>(LaterEvent::kRegionEnd));
  }
};

void EventEncoder::event(const Event& event) {
  for (ColumnBuffer& column : columns_) column.make_room(kMaxEventBytes);
  advance_time(event.time);
  if (event.thread.raw() != state_.thread) {
    columns_[kRecords].byte(static_cast<std::uint8_t>(RecordKind::kThread));
    columns_[kRecords].varint(state_.thread = event.thread.raw());
  }
  visit_event(BodyEncoder{columns_[kRecords], columns_[kAddresses], state_, time_flag_},
              event.body);
  if (is_counted(event.body)) ++event_count_;
}

// Time never goes back: a clock that does is held where it was.
void EventEncoder::advance_time(TimeNs time) {
  const auto now = static_cast<std::uint64_t>(time.raw());
  if (!started_) {
    started_ = true;
    base_time_ = state_.time = now;
  }
  time_flag_ = 0;
  if (time.raw() <= static_cast<std::int64_t>(state_.time)) return;
  columns_[kTimes].varint(now - state_.time);
  state_.time = now;
  time_flag_ = kTimeFlag;
}

ColumnBuffer& EventEncoder::definition(RecordKind kind) {
  ColumnBuffer& records = columns_[kRecords];
  records.make_room(kMaxEventBytes);
  records.byte(static_cast<std::uint8_t>(kind));
  return records;
}

void EventEncoder::define_name(std::string_view text) {
  definition(RecordKind::kDefineName).text(text);
}

void EventEncoder::define_op(std::string_view name) {
  definition(RecordKind::kDefineOp).text(name);
}

void EventEncoder::define_module(const ModuleInfo& module) {
  ColumnBuffer& records = definition(RecordKind::kDefineModule);
  records.varint(module.parent.raw());
  records.text(module.path);
  records.text(module.type);
}

void EventEncoder::define_device(const DeviceInfo& device) {
  ColumnBuffer& records = definition(RecordKind::kDefineDevice);
  records.varint(zigzag(device.total.raw()));
  records.text(device.name);
  records.text(device.model);
}

void EventEncoder::define_thread(std::string_view name) {
  definition(RecordKind::kDefineThread).text(name);
}

void EventEncoder::define_category(const CategoryInfo& category) {
  ColumnBuffer& records = definition(RecordKind::kDefineCategory);
  records.byte(category.parent.raw());
  records.text(category.name);
}

void EventEncoder::define_line(const CodeLine& line) {
  ColumnBuffer& records = definition(RecordKind::kLaterWord);
  const std::size_t fields = 2 + varint_bytes(line.file.raw()) + varint_bytes(line.function.raw()) +
                             varint_bytes(line.line);
  records.varint(fields + varint_bytes(line.text.size()) + line.text.size());
  records.byte(static_cast<std::uint8_t>(LaterWord::kLine));
  records.byte(line.library ? kLibraryLine : std::uint8_t{0});
  records.varint(line.file.raw());
  records.varint(line.function.raw());
  records.varint(line.line);
  records.text(line.text);
}

void EventEncoder::define_stack(const StackInfo& stack) {
  ColumnBuffer& records = definition(RecordKind::kLaterWord);
  records.varint(1 + varint_bytes(stack.caller.raw()) + varint_bytes(stack.line.raw()));
  records.byte(static_cast<std::uint8_t>(LaterWord::kStack));
  records.varint(stack.caller.raw());
  records.varint(stack.line.raw());
}

void EventEncoder::take(std::vector<std::uint8_t>& out) {
  out.clear();
  coding::append_varint(out, event_count_);
  coding::append_varint(out, zigzag(static_cast<std::int64_t>(base_time_)));
  coding::append_varint(out, base_block_);
  coding::append_varint(out, columns_.size());
  for (const ColumnBuffer& column : columns_) coding::append_varint(out, column.size());
  for (ColumnBuffer& column : columns_) {
    out.insert(out.end(), column.data(), column.data() + column.size());
    column.clear();
  }
  base_time_ = state_.time;
  base_block_ = state_.newest;
  state_ = DeltaState(base_time_, base_block_);
  event_count_ = 0;
}

}  // namespace peakline::trace
