// The free blocks of one pool, stream by stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <peakline/allocator.h>

#include "allocator/block.h"
#include "allocator/free_list.h"

namespace peakline {

// Small or large blocks of the default pool or of a private one. torch keeps them in one set that
// is ordered by stream first; here every stream has a list of its own.
struct BlockPool {
  // What one stream has cached.
  struct StreamCache {
    FreeList free;
    std::map<std::uint64_t, BlockIndex> unmapped;  // of expandable segments, by address
  };

  BlockPool(bool small, PoolId pool) : is_small(small), owner(pool) {}

  StreamCache& of(std::uint32_t stream) {
    if (stream >= streams.size()) streams.resize(stream + 1);
    if (!streams[stream]) streams[stream] = std::make_unique<StreamCache>();
    return *streams[stream];
  }

  bool is_small;
  PoolId owner;
  std::int64_t searches = 0;                          // counted only while garbage collection is on
  std::vector<std::unique_ptr<StreamCache>> streams;  // by slot; empty where never used
};

}  // namespace peakline
