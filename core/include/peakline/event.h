// What happened, in order: the one stream that every producer writes and every answer reads.
#pragma once

#include <cstdint>
#include <variant>

#include <peakline/certainty.h>
#include <peakline/ids.h>
#include <peakline/units.h>

namespace peakline {

// Which way a module is being run.
enum class ModulePass : std::uint8_t { kForward, kBackward, kRecompute };

// What the program is doing as a whole, known even when no model was given.
enum class Phase : std::uint8_t { kForward, kBackward, kOptimizer };

// An operator ran on this thread. Ends nest: an end closes the innermost open begin.
struct OpBegin {
  OpId op;
};
struct OpEnd {};

// The allocator handed out `block`. `bytes` is what it counts, `requested` what was asked for.
struct Alloc {
  BlockId block;
  Bytes bytes;
  Bytes requested;
  Address address;
  StreamId stream;
  DeviceId device;
};

// The program gave `block` back: it no longer counts as allocated.
struct Free {
  BlockId block;
};

// `block` became reusable. Written only when that is later than its Free (record_stream).
struct FreeCompleted {
  BlockId block;
};

// `block` changed its size in place.
struct Resize {
  BlockId block;
  Bytes bytes;
};

// Says what a live block is and whose. Holds for its whole life; the last label wins.
struct Label {
  BlockId block;
  CategoryId category;
  ModuleId module;  // none: keep the module that was running when it was allocated
  NameId name;      // for example a parameter's name
};

struct ModuleEnter {
  ModuleId module;
  ModulePass pass = ModulePass::kForward;
};
struct ModuleLeave {
  ModuleId module;
  ModulePass pass = ModulePass::kForward;
};

struct PhaseBegin {
  Phase phase = Phase::kForward;
};
struct PhaseEnd {
  Phase phase = Phase::kForward;
};

// A training step is complete: everything since the last one (or the start) was that step.
struct StepEnd {};

// A moment the program named.
struct Marker {
  NameId name;
};

// A collective was issued, moving `bytes` on this rank.
struct Collective {
  NameId name;
  NameId group;
  Bytes bytes;
};

// `block` is also used on `stream`, so its memory is not reusable before that stream is done. Where
// only the waiting was seen, this follows the block's Free, before anything else happens on its
// device.
struct StreamUse {
  BlockId block;
  StreamId stream;
};

// A stream that stands for "some other stream", where nobody said which.
inline constexpr StreamId kUnknownStream{0xffffffff};

// The allocator took a segment from the driver, or gave one back.
struct SegmentAlloc {
  Address address;
  Bytes bytes;
  StreamId stream;
  DeviceId device;
};
struct SegmentFree {
  Address address;
  Bytes bytes;
  DeviceId device;
};

// Reserved bytes became this, from a producer that does not see segments.
struct Reserved {
  Bytes bytes;
  DeviceId device;
};

// The program asked the allocator to return what it caches.
struct EmptyCache {
  DeviceId device;
};

// The allocator could not serve `requested`: after freeing its cache it tried again (kRetry), or
// gave up.
struct OutOfMemory {
  enum class Kind : std::uint8_t { kRetry, kFailed };
  Bytes requested;
  DeviceId device;
  Kind kind = Kind::kFailed;
};

// How surely the size of a live block is known, from a producer that works sizes out. Blocks of which
// nothing is said are exact.
struct Sureness {
  BlockId block;
  Certainty certainty = Certainty::kExact;
};

// Where in the program the next allocation of this thread was asked for, be it granted or not.
struct CallStack {
  StackId stack;
  StackId forward;  // in backward: where the forward call was made that this is the backward of
};

// The program entered a part of itself that it gave a name, or left the innermost one, on this thread.
struct RegionBegin {
  NameId name;
};
struct RegionEnd {};

// The producer knows that it missed something; `what` names it (see diagnostics.h).
struct Lost {
  NameId what;
  std::uint64_t count = 0;
};

using EventBody =
    std::variant<OpBegin, OpEnd, Alloc, Free, FreeCompleted, Resize, Label, ModuleEnter,
                 ModuleLeave, PhaseBegin, PhaseEnd, StepEnd, Marker, Collective, StreamUse,
                 SegmentAlloc, SegmentFree, Reserved, EmptyCache, OutOfMemory, Lost, Sureness,
                 CallStack, RegionBegin, RegionEnd>;

struct Event {
  TimeNs time;  // never decreases within a recording
  ThreadId thread;
  EventBody body;
};

// Calls `handler` with the body's own type. A switch, unlike std::visit over this many types,
// inlines.
template <class Handler>
decltype(auto) visit_event(Handler&& handler, const EventBody& body) {
  static_assert(std::variant_size_v<EventBody> == 25, "add a case below");
  switch (body.index()) {
    case 0:
      return handler(*std::get_if<0>(&body));
    case 1:
      return handler(*std::get_if<1>(&body));
    case 2:
      return handler(*std::get_if<2>(&body));
    case 3:
      return handler(*std::get_if<3>(&body));
    case 4:
      return handler(*std::get_if<4>(&body));
    case 5:
      return handler(*std::get_if<5>(&body));
    case 6:
      return handler(*std::get_if<6>(&body));
    case 7:
      return handler(*std::get_if<7>(&body));
    case 8:
      return handler(*std::get_if<8>(&body));
    case 9:
      return handler(*std::get_if<9>(&body));
    case 10:
      return handler(*std::get_if<10>(&body));
    case 11:
      return handler(*std::get_if<11>(&body));
    case 12:
      return handler(*std::get_if<12>(&body));
    case 13:
      return handler(*std::get_if<13>(&body));
    case 14:
      return handler(*std::get_if<14>(&body));
    case 15:
      return handler(*std::get_if<15>(&body));
    case 16:
      return handler(*std::get_if<16>(&body));
    case 17:
      return handler(*std::get_if<17>(&body));
    case 18:
      return handler(*std::get_if<18>(&body));
    case 19:
      return handler(*std::get_if<19>(&body));
    case 20:
      return handler(*std::get_if<20>(&body));
    case 21:
      return handler(*std::get_if<21>(&body));
    case 22:
      return handler(*std::get_if<22>(&body));
    case 23:
      return handler(*std::get_if<23>(&body));
    default:
      return handler(*std::get_if<24>(&body));
  }
}

}  // namespace peakline
