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

struct BlockPool;

// What one stream has cached in one pool.
struct StreamCache {
  BlockPool& pool;
  std::uint32_t stream;  // its slot
  bool is_small;
  FreeList free;
  std::map<std::uint64_t, BlockIndex> unmapped;  // of expandable segments, by address
};

// Small or large blocks of the default pool or of a private one. torch keeps them in one set that
// is ordered by stream first; here every stream has a list of its own.
struct BlockPool {
  BlockPool(bool small, PoolId id) : is_small(small), owner(id) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  StreamCache& of(std::uint32_t stream) {
    if (stream < streams.size() && streams[stream]) return *streams[stream];
    if (stream >= streams.size()) streams.resize(stream + 1);
    streams[stream].reset(new StreamCache{*this, stream, is_small, {}, {}});
    return *streams[stream];
  }

  bool is_small;
  PoolId owner;
  std::int64_t searches = 0;                          // counted only while garbage collection is on
  std::vector<std::unique_ptr<StreamCache>> streams;  // by slot; empty where never used
};

}  // namespace peakline
