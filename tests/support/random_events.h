// Streams that no run would produce: every kind of event, plausible and absurd fields mixed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

#include "trace_builder.h"

namespace peakline::testing {

class RandomFields {
 public:
  explicit RandomFields(std::mt19937_64& random) : random_(random) {}

  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  // As often one byte long as eight.
  std::uint64_t number() { return random_() >> below(64); }
  std::uint32_t number32() { return static_cast<std::uint32_t>(random_() >> (32 + below(32))); }
  Bytes bytes() {
    const auto value = static_cast<std::int64_t>(number());
    return Bytes(below(8) == 0 ? -(value / 2) : below(2) == 0 ? value / 512 * 512 : value);
  }
  // Mostly a block near the newest one.
  BlockId block() { return BlockId(below(10) == 0 ? number() : newest_ - below(newest_ + 1) / 2); }
  OpId op() { return OpId(number32()); }
  NameId name() { return NameId(number32()); }
  ModuleId module() { return ModuleId(number32()); }
  StreamId stream() { return StreamId(below(4) == 0 ? number32() : 0); }
  DeviceId device() { return DeviceId(static_cast<std::uint8_t>(below(8) == 0 ? number32() : 0)); }
  Address address() { return Address(below(3) == 0 ? number() : number() / 512 * 512); }
  CategoryId category() { return CategoryId(static_cast<std::uint8_t>(number32())); }
  ModulePass pass() { return static_cast<ModulePass>(below(3)); }
  Phase phase() { return static_cast<Phase>(below(3)); }

  Alloc alloc() {
    const Bytes size = bytes();
    newest_ = below(10) == 0 ? number() : newest_ + 1;
    return {BlockId(newest_), size, below(3) == 0 ? bytes() : size, address(), stream(), device()};
  }

  EventBody body() {
    switch (below(25)) {
      case 0:
        return OpBegin{op()};
      case 1:
        return OpEnd{};
      case 2:
        return alloc();
      case 3:
        return Free{block()};
      case 4:
        return FreeCompleted{block()};
      case 5:
        return Resize{block(), bytes()};
      case 6:
        return Label{block(), category(), module(), name()};
      case 7:
        return ModuleEnter{module(), pass()};
      case 8:
        return ModuleLeave{module(), pass()};
      case 9:
        return PhaseBegin{phase()};
      case 10:
        return PhaseEnd{phase()};
      case 11:
        return StepEnd{};
      case 12:
        return Marker{name()};
      case 13:
        return Collective{name(), name(), bytes()};
      case 14:
        return StreamUse{block(), stream()};
      case 15:
        return SegmentAlloc{address(), bytes(), stream(), device()};
      case 16:
        return SegmentFree{address(), bytes(), device()};
      case 17:
        return Reserved{bytes(), device()};
      case 18:
        return EmptyCache{device()};
      case 19:
        return OutOfMemory{bytes(), device(), static_cast<OutOfMemory::Kind>(below(2))};
      case 20:
        return Lost{name(), number()};
      case 21:
        return CallStack{StackId(number32()), StackId(below(2) == 0 ? number32() : 0)};
      case 22:
        return RegionBegin{name()};
      case 23:
        return RegionEnd{};
      default:
        return Sureness{block(), static_cast<Certainty>(below(kCertainties))};
    }
  }

 private:
  std::mt19937_64& random_;
  std::uint64_t newest_ = 0;
};

inline TraceBuilder random_events(std::mt19937_64& random, std::size_t count) {
  RandomFields fields(random);
  TraceBuilder trace;
  trace.tick(0);
  for (std::size_t i = 0; i < count; ++i) {
    if (fields.below(3) != 0) trace.wait(static_cast<std::int64_t>(fields.number() >> 20));
    if (fields.below(4) == 0) trace.thread("thread " + std::to_string(fields.below(5)));
    trace.add(fields.body());
  }
  return trace;
}

}  // namespace peakline::testing
