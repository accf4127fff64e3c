// The allocator's rules that changed between releases of torch (docs/allocator.md says when, and how it is known).
#pragma once

#include <cstdint>

#include <peakline/allocator_config.h>

namespace peakline {

struct AllocatorRules {
  // Which of several free blocks of one size is taken.
  enum class EqualBlocks : std::uint8_t {
    kLowestAddress,
    kOldestBlock,    // blocks are numbered as they are made, by splits, too
    kOldestSegment,  // and in there the lowest address
  };

  EqualBlocks equal_blocks = EqualBlocks::kLowestAddress;
  // Filling a MemPool counts as capturing a graph: nothing is given back, frees of blocks that
  // other streams used wait for its end.
  bool mem_pool_captures = true;
  // A share of the device is rounded to whole bytes, not cut.
  bool rounds_limit = false;

  static constexpr AllocatorRules of(TorchVersion torch) noexcept {
    AllocatorRules rules;
    if (torch >= TorchVersion{2, 12}) rules.equal_blocks = EqualBlocks::kOldestBlock;
    if (torch >= TorchVersion{2, 13}) {
      rules.equal_blocks = EqualBlocks::kOldestSegment;
      rules.mem_pool_captures = false;
      rules.rounds_limit = true;
    }
    return rules;
  }
};

}  // namespace peakline
