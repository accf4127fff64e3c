// Plays a TraceBuilder's events through passes.
#pragma once

#include <string_view>
#include <vector>

#include <peakline/replay.h>

#include "ledger/moment_set.h"
#include "trace_builder.h"

namespace peakline::testing {

inline Diagnostics play(const TraceBuilder& trace, std::vector<Pass*> passes) {
  Replay replay(trace.dictionary());
  for (Pass* pass : passes) replay.add(*pass);
  for (const Event& event : trace.events()) replay.on(event);
  replay.finish();
  return replay.diagnostics();
}

// Bytes held in a category.
inline Bytes held_in(const std::vector<Held>& held, CategoryId category) {
  Bytes sum;
  for (const Held& block : held) {
    if (block.category == category) sum += block.bytes;
  }
  return sum;
}

inline Bytes total(const std::vector<Held>& held) {
  Bytes sum;
  for (const Held& block : held) sum += block.bytes;
  return sum;
}

}  // namespace peakline::testing
