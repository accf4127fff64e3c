// What observers hand over while the program runs: small, of one size, with addresses instead of
// blocks. The assembler turns these into the recording's events on another thread.
#pragma once

#include <cstdint>

namespace peakline::capture {

enum class RawKind : std::uint8_t {
  kOpBegin,        // id: op
  kOpEnd,          //
  kAlloc,          // address, size, extra: requested bytes, id: stream
  kAllocEstimate,  // likewise, but the size is not certain until its kResize or the next kTotal
  kAdopt,          // likewise, of a block that was there before, unless it is known already
  kFree,           // address, size (0 when the allocator does not say)
  kFreeWaits,      // address of the device's last free: other streams still use the block
  kFreeCompleted,  // address; only when that was later than the free
  kResize,         // address, size: the new one
  kLabel,          // address, size: module << 32 | name, id: category
  kSureness,       // address, id: certainty
  kLabelWalk,      // the labels of parameters and what belongs to them follow, or are as before
  kTotal,          // size: what the allocator now counts on this device
  kForeignBlock,   // size: bytes that were alive before, and that nothing more is known of
  kModuleEnter,    // id: module, address: sequence number, extra: autograd thread, flag: recompute
  kModuleLeave,    // likewise
  kNodeBegin,      // an autograd node: address: sequence number, extra: autograd thread, id: depth
  kNodesMade,      // address: the first one's sequence number, extra: autograd thread, id: stack
  kStack,          // of this thread's next allocation: id: stack, size: the same without the
                   // library's lines at its end
  kBackwardStack,  // likewise, of the call of backward
  kRegionBegin,    // id: name
  kRegionEnd,      //
  kPhaseBegin,     // id: phase
  kPhaseEnd,       // id: phase
  kStepEnd,        //
  kMarker,         // id: name
  kCollective,     // id: name, size: what it moves
  kSegmentAlloc,   // address, size, id: stream
  kSegmentFree,    // address, size
  kReserved,       // size
  kEmptyCache,     // the program asked the allocator to give back what it caches
  kRetry,          // size: requested; the allocator gave its cache back and tried again
  kOutOfMemory,    // size: requested
  kLost,           // id: loss, size: count
};

struct RawEvent {
  std::uint64_t ticks = 0;  // filled in by the queue
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::uint64_t extra = 0;
  std::uint32_t id = 0;
  std::uint16_t thread = 0;
  RawKind kind = RawKind::kOpEnd;
  std::uint8_t device = 0;  // or a flag, for modules
};
static_assert(sizeof(RawEvent) == 40);

inline constexpr std::uint64_t pack_owner(std::uint32_t module, std::uint32_t name) {
  return std::uint64_t{module} << 32 | name;
}

}  // namespace peakline::capture
