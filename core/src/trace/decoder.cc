#include "trace/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/coding.h"

namespace peakline::trace {

using coding::ByteReader;
using coding::unzigzag;

namespace {

Status too_many_words() {
  return invalid_input(fmt::format("it defines more than {} words, or {} bytes of them",
                                   Dictionary::kMaxWords, Dictionary::kMaxTextBytes));
}

}  // namespace

Status EventDecoder::malformed(const std::uint8_t* at) const {
  return invalid_input(fmt::format("a record makes no sense {} bytes into the chunk", at - begin_));
}

Status EventDecoder::start(std::span<const std::uint8_t> payload) {
  begin_ = payload.data();
  ByteReader in(payload);
  events_left_ = in.varint();
  const auto base_time = static_cast<std::uint64_t>(unzigzag(in.varint()));
  const std::uint64_t base_block = in.varint();
  const std::uint64_t columns = in.varint_up_to(kMaxColumns);
  std::array<std::uint64_t, kMaxColumns> sizes{};
  for (std::uint64_t i = 0; i < columns; ++i) sizes[i] = in.varint();
  if (!in.ok() || columns < kColumns) return malformed(in.position());
  for (std::size_t i = 0; i < columns; ++i) {
    const std::uint8_t* column = in.position();
    in.skip(sizes[i]);
    if (i < kColumns) columns_[i] = {column, in.position()};
  }
  if (!in.ok() || in.remaining() != 0) {
    return invalid_input("a chunk's columns do not fill it");
  }
  state_ = DeltaState(base_time, base_block);
  return {};
}

// Reads the fields of events. Reads may run past a column's end, never past the slack behind the
// payload; `bad` and the cursors are checked once per event.
struct EventDecoder::Fields {
  const std::uint8_t* at;
  const std::uint8_t* addresses;
  DeltaState& state;
  std::uint64_t bad = 0;
  std::size_t uncounted = 0;  // events of later kinds

  std::uint64_t number() { return coding::get_varint(at, bad); }
  std::uint32_t number32() {
    const std::uint64_t value = coding::get_short_varint(at, bad);
    bad |= value >> 32;
    return static_cast<std::uint32_t>(value);
  }
  std::uint8_t byte() { return *at++; }
  Bytes bytes() { return Bytes(unzigzag(number())); }
  OpId op() { return OpId(number32()); }
  NameId name() { return NameId(number32()); }
  ModuleId module() { return ModuleId(number32()); }
  StreamId stream() { return StreamId(number32()); }
  DeviceId device() { return DeviceId(byte()); }
  Address address() { return Address(number()); }
  BlockId block() { return BlockId(state.newest - number()); }

  // Relative to the newest block, or (flag A) to the last one of its kind.
  BlockId block(std::uint8_t tag, std::uint64_t& last) {
    const std::uint64_t value = number();
    last =
        (tag & kFlagA) ? last + static_cast<std::uint64_t>(unzigzag(value)) : state.newest - value;
    return BlockId(last);
  }
  template <class Choice>
  Choice choice(std::uint8_t tag) {
    const unsigned value = tag >> kPassShift;
    bad |= value == 3;
    return static_cast<Choice>(value);
  }

  Alloc alloc(std::uint8_t tag) {
    const std::uint8_t extra = (tag & kFlagA) ? byte() : std::uint8_t{0};
    std::uint64_t saved = 0;
    std::uint64_t block = state.newest + 1;
    if (extra != 0) [[unlikely]] {
      bad |= extra & ~unsigned{alloc_extra::kAll};
      if (extra & alloc_extra::kRequested) saved = static_cast<std::uint64_t>(unzigzag(number()));
      if (extra & alloc_extra::kBlock) {
        block = state.newest + static_cast<std::uint64_t>(unzigzag(number()));
      }
      if (extra & alloc_extra::kStream) state.stream = number32();
      if (extra & alloc_extra::kDevice) state.device = byte();
    }
    const std::uint64_t size = number();
    const std::uint64_t bytes =
        (tag & kFlagB) ? size * kSizeUnit : static_cast<std::uint64_t>(unzigzag(size));
    state.newest = block;
    std::uint64_t address = 0;
    if (!(extra & alloc_extra::kNoAddress)) {
      const auto moved = static_cast<std::uint64_t>(unzigzag(coding::get_varint(addresses, bad)));
      const bool unaligned = extra & alloc_extra::kUnalignedAddress;
      address = state.address_guess + (unaligned ? moved : moved * kAddressUnit);
      state.placed(address, bytes);
    }
    return {BlockId(block),
            Bytes(static_cast<std::int64_t>(bytes)),
            Bytes(static_cast<std::int64_t>(bytes - saved)),
            Address(address),
            StreamId(state.stream),
            DeviceId(state.device)};
  }

  Label label(std::uint8_t tag) {
    Label label;
    label.block = block(tag, state.labelled);
    label.category = CategoryId(byte());
    if (tag & kFlagB) {
      label.module = module();
      label.name = name();
    }
    return label;
  }

  // Behind its length, as all later kinds; fields that a later version adds are skipped.
  Sureness sureness() {
    ++uncounted;
    const std::uint64_t length = number();
    const std::uint8_t* start = at;
    Sureness read{block(), Certainty::kExact};
    const std::uint8_t certainty = byte();
    read.certainty = static_cast<Certainty>(std::min<std::uint8_t>(certainty, kCertainties - 1));
    end_later(start, length);
    return read;
  }

  // The same for a call stack.
  CallStack call_stack(std::uint8_t tag) {
    ++uncounted;
    const std::uint64_t length = number();
    const std::uint8_t* start = at;
    CallStack read{StackId(number32()), StackId{}};
    if (tag & kFlagA) read.forward = StackId(number32());
    end_later(start, length);
    return read;
  }
  void end_later(const std::uint8_t* start, std::uint64_t length) {
    const auto used = static_cast<std::uint64_t>(at - start);
    bad |= length < used || length > kMaxEventBytes;
    if (bad == 0) at = start + length;
  }
  // False, and nothing is read, when its kind is not known here.
  bool later_event(EventBody& body) {
    const std::uint8_t* before = at;
    const std::uint64_t length = number();
    const std::uint8_t* start = at;
    const auto kind = static_cast<LaterEvent>(length == 0 ? std::uint8_t{0xff} : byte());
    if (bad == 0 && kind == LaterEvent::kRegionBegin) {
      put(body, RegionBegin{name()});
    } else if (bad == 0 && kind == LaterEvent::kRegionEnd) {
      put(body, RegionEnd{});
    } else {
      at = before;
      return false;
    }
    ++uncounted;
    end_later(start, length);
    return true;
  }

  // Emplacing, unlike assigning, does not ask what was there before.
  template <class Body>
  static bool put(EventBody& body, const Body& value) {
    body.emplace<Body>(value);
    return true;
  }

  // False when the tag is not an event's. Braced lists evaluate from left to right, which is the
  // order of the fields in the file.
  bool body(std::uint8_t tag, EventBody& body) {
    switch (tag & kKindMask) {
      case kKindOf<OpBegin>:
        return put(body, OpBegin{op()});
      case kKindOf<OpEnd>:
        return put(body, OpEnd{});
      case kKindOf<Alloc>:
        return put(body, alloc(tag));
      case kKindOf<Free>:
        return put(body, Free{block(tag, state.freed)});
      case kKindOf<FreeCompleted>:
        return put(body, FreeCompleted{block()});
      case kKindOf<Resize>:
        return put(body, Resize{block(), bytes()});
      case kKindOf<Label>:
        return put(body, label(tag));
      case kKindOf<ModuleEnter>:
        return put(body, ModuleEnter{module(), choice<ModulePass>(tag)});
      case kKindOf<ModuleLeave>:
        return put(body, ModuleLeave{module(), choice<ModulePass>(tag)});
      case kKindOf<PhaseBegin>:
        return put(body, PhaseBegin{choice<Phase>(tag)});
      case kKindOf<PhaseEnd>:
        return put(body, PhaseEnd{choice<Phase>(tag)});
      case kKindOf<StepEnd>:
        return put(body, StepEnd{});
      case kKindOf<Marker>:
        return put(body, Marker{name()});
      case kKindOf<Collective>:
        return put(body, Collective{name(), name(), bytes()});
      case kKindOf<StreamUse>:
        return put(body, StreamUse{block(), stream()});
      case kKindOf<SegmentAlloc>:
        return put(body, SegmentAlloc{address(), bytes(), stream(), device()});
      case kKindOf<SegmentFree>:
        return put(body, SegmentFree{address(), bytes(), device()});
      case kKindOf<Reserved>:
        return put(body, Reserved{bytes(), device()});
      case kKindOf<EmptyCache>:
        return put(body, EmptyCache{device()});
      case kKindOf<OutOfMemory>:
        return put(body, OutOfMemory{bytes(), device(),
                                     (tag & kFlagA) ? OutOfMemory::Kind::kFailed
                                                    : OutOfMemory::Kind::kRetry});
      case kKindOf<Lost>:
        return put(body, Lost{name(), number()});
      case static_cast<std::uint8_t>(RecordKind::kSureness):
        return put(body, sureness());
      case static_cast<std::uint8_t>(RecordKind::kCallStack):
        return put(body, call_stack(tag));
      case static_cast<std::uint8_t>(RecordKind::kLaterEvent):
        return later_event(body);
      default:
        return false;
    }
  }
};

// Flattened: this is the loop that reading a recording is made of.
[[gnu::flatten]] Result<std::size_t> EventDecoder::decode(std::span<Event> events) {
  Cursor& records = columns_[kRecords];
  Cursor& times = columns_[kTimes];
  Cursor& addresses = columns_[kAddresses];
  DeltaState state = state_;  // a local, so that it can live in registers
  Fields fields{records.at, addresses.at, state};
  const std::uint8_t* time_at = times.at;
  std::size_t count = 0;
  while (count < events.size() && fields.at < records.end) {
    const std::uint8_t* start = fields.at;
    const std::uint8_t tag = *fields.at++;
    if (tag & kTimeFlag) {
      const std::uint64_t now = state.time + coding::get_varint(time_at, fields.bad);
      fields.bad |= static_cast<std::int64_t>(now) < static_cast<std::int64_t>(state.time);
      state.time = now;
    }
    Event& event = events[count];
    if (fields.body(tag, event.body)) [[likely]] {
      event.time = TimeNs(static_cast<std::int64_t>(state.time));
      event.thread = ThreadId(state.thread);
      ++count;
    } else {
      const std::uint8_t* at = fields.at;  // copies: `fields` and `state` stay in registers
      state_.thread = state.thread;
      PEAKLINE_RETURN_IF_ERROR(other_record(at, tag));
      state.thread = state_.thread;
      fields.at = at;
    }
    if (fields.bad != 0 || fields.at > records.end || time_at > times.end ||
        fields.addresses > addresses.end) [[unlikely]] {
      return malformed(start);
    }
  }
  records.at = fields.at;
  addresses.at = fields.addresses;
  times.at = time_at;
  state_ = state;
  counted_ = count - fields.uncounted;
  if (counted_ > events_left_) return malformed(records.at);
  events_left_ -= counted_;
  if (count == 0) PEAKLINE_RETURN_IF_ERROR(finish());
  return count;
}

Status EventDecoder::other_record(const std::uint8_t*& at, std::uint8_t tag) {
  const auto kind = static_cast<RecordKind>(tag & kKindMask);
  if (kind < RecordKind::kThread) return define(at, kind);
  if (kind == RecordKind::kLaterWord) return define_later(at);
  ByteReader in({at, columns_[kRecords].end});
  if (kind == RecordKind::kThread) {
    state_.thread =
        static_cast<std::uint16_t>(in.varint_up_to(std::numeric_limits<std::uint16_t>::max()));
  } else {
    in.skip(in.varint());
    diagnostics_->count(Loss::kUnknownRecord);
  }
  if (!in.ok()) return malformed(at - 1);
  at = in.position();
  return {};
}

Status EventDecoder::define(const std::uint8_t*& at, RecordKind kind) {
  ByteReader in({at, columns_[kRecords].end});
  Definition word;
  if (kind == RecordKind::kDefineModule || kind == RecordKind::kDefineDevice) {
    word.number = in.varint();
  } else if (kind == RecordKind::kDefineCategory) {
    word.number = in.byte();
  }
  word.text = in.text();
  if (kind == RecordKind::kDefineModule || kind == RecordKind::kDefineDevice) {
    word.second = in.text();
  }
  const std::size_t longest = std::max(word.text.size(), word.second.size());
  if (!in.ok() || longest > kMaxTextBytes) return malformed(at - 1);
  if (!dictionary_->has_room(word.text.size() + word.second.size())) {
    return too_many_words();
  }
  if (!add_word(kind, word)) return malformed(at - 1);
  at = in.position();
  return {};
}

// A length comes first, and then the table.
Status EventDecoder::define_later(const std::uint8_t*& at) {
  ByteReader outer({at, columns_[kRecords].end});
  const std::uint64_t length = outer.varint();
  const std::uint8_t* start = outer.position();
  outer.skip(length);
  if (!outer.ok()) return malformed(at - 1);
  ByteReader in({start, static_cast<std::size_t>(length)});
  const auto table = static_cast<LaterWord>(length == 0 ? std::uint8_t{0xff} : in.byte());
  if (table == LaterWord::kLine || table == LaterWord::kStack) {
    if (!dictionary_->has_room(static_cast<std::size_t>(length))) return too_many_words();
    if (!add_later_word(table, in)) return malformed(at - 1);
  } else {
    diagnostics_->count(Loss::kUnknownRecord);
  }
  at = outer.position();
  return {};
}

bool EventDecoder::add_later_word(LaterWord table, ByteReader& in) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  const auto number = [&in] { return static_cast<std::uint32_t>(in.varint_up_to(kMost)); };
  if (table == LaterWord::kStack) {
    const StackId caller(number());
    const LineId line(number());
    return in.ok() && dictionary_->define_stack(caller, line);
  }
  CodeLine line;
  line.library = (in.byte() & kLibraryLine) != 0;
  line.file = NameId(number());
  line.function = NameId(number());
  line.line = number();
  const std::string_view text = in.text();
  if (!in.ok() || text.size() > kMaxTextBytes) return false;
  line.text = text;
  return dictionary_->define_line(std::move(line));
}

bool EventDecoder::add_word(RecordKind kind, const Definition& word) {
  std::string text(word.text);
  switch (kind) {
    case RecordKind::kDefineName:
      return dictionary_->define_name(std::move(text));
    case RecordKind::kDefineOp:
      return dictionary_->define_op(std::move(text));
    case RecordKind::kDefineModule:
      if (word.number > std::numeric_limits<ModuleId::rep>::max()) return false;
      return dictionary_->define_module({std::move(text), std::string(word.second),
                                         ModuleId(static_cast<ModuleId::rep>(word.number))});
    case RecordKind::kDefineDevice:
      return dictionary_->define_device(
          {std::move(text), std::string(word.second), Bytes(unzigzag(word.number))});
    case RecordKind::kDefineThread:
      return dictionary_->define_thread(std::move(text));
    case RecordKind::kDefineCategory:
      return dictionary_->define_category(
          {std::move(text), CategoryId(static_cast<CategoryId::rep>(word.number))});
    default:
      return false;
  }
}

Status EventDecoder::finish() const {
  for (const Cursor& column : columns_) {
    if (column.at != column.end) return invalid_input("a chunk's columns do not end together");
  }
  if (events_left_ != 0) return invalid_input("a chunk holds fewer events than it promises");
  return {};
}

}  // namespace peakline::trace
