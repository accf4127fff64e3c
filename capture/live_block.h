// A block that is alive, as the recording knows it.
#pragma once

#include <cstdint>

#include <peakline/ids.h>

#include "capture/raw_event.h"

namespace peakline::capture {

struct LiveBlock {
  std::uint64_t address = 0;
  std::uint64_t owner = 0;  // as in the last label
  std::int64_t bytes = 0;
  BlockId block;
  CategoryId category;
  bool made_by_model = false;

  // Where it comes from: the `ordinal`th allocation of its thread in that step; 0: nobody counted.
  std::uint16_t thread = 0;
  std::uint32_t ordinal = 0;
  std::uint64_t step = 0;
};

// Where raw events go that are complete, in order, and what is known there of the blocks that they
// are about.
struct RawEventOutput {
  virtual ~RawEventOutput() = default;
  virtual void on(const RawEvent& raw) = 0;
  // The block at the event's device and address, as it was left by the last event. Null: unknown.
  [[nodiscard]] virtual LiveBlock* find(const RawEvent& raw) = 0;
};

}  // namespace peakline::capture
