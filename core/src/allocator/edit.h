// A change of a program, as what it does to the allocations of its recording: an edit decides what
// reaches the simulated allocator, and when.
#pragma once

#include <memory>

#include <peakline/replay.h>

#include "allocator/session.h"

namespace peakline {

struct AdviceFacts;

// The program as it was. It sees the events of one device.
class Edit {
 public:
  virtual ~Edit() = default;
  virtual void alloc(Session& session, const Now&, const Block& block, Bytes requested) {
    session.alloc(block.id, requested, block.stream);
  }
  virtual void free(Session& session, const Now&, const Block& block) { session.free(block.id); }
  virtual void module_enter(Session&, const Now&, const ModuleFrame&) {}
  virtual void module_leave(Session&, const Now&, const ModuleFrame&) {}
  virtual void phase_begin(Session&, const Now&, Phase) {}
  virtual void phase_end(Session&, const Now&, Phase) {}
  // Whether the allocator has the block, so that other streams' use of it matters.
  [[nodiscard]] virtual bool has(BlockId) const { return true; }
  // Whether all that the edit takes for granted was so.
  [[nodiscard]] virtual bool holds() const { return true; }
};

// An optimizer without the temporaries of foreach.
std::unique_ptr<Edit> edit_fused();
// Gradients are gone when the optimizer's step ends, and not when the next backward is about to begin.
std::unique_ptr<Edit> edit_zeroed_after_step(DeviceId device);
// Each parameter is updated as soon as its gradient is there. `facts` outlives the edit.
std::unique_ptr<Edit> edit_updated_in_backward(const AdviceFacts& facts);
// Layers run forward again in backward, from what they were given. `facts` outlives the edit.
std::unique_ptr<Edit> edit_recomputed(const AdviceFacts& facts);

}  // namespace peakline
