// The inside of CachingAllocator. The steps of an allocation are spread over
//   simulator.cc   the way of a request: search, split, give back, join
//   reclaim.cc     getting memory back: garbage collection, retry, empty_cache
//   expandable.cc  segments that grow
//   streams.cc     blocks that other streams use, private pools
//   checkpoint.cc  private pools as they were
//   views.cc       what can be seen from outside
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <peakline/address_map.h>
#include <peakline/allocator.h>

#include "allocator/block.h"
#include "allocator/block_pool.h"
#include "allocator/rules.h"

namespace peakline {

class CachingAllocator::Impl {
 public:
  Impl(const AllocatorConfig& config, DeviceModel& device);

  Allocation allocate(std::uint64_t requested, StreamId stream);
  bool free(Address address);

  bool record_stream(Address address, StreamId stream);
  void stream_done(StreamId stream);
  void synchronize();
  bool complete_free(Address address);

  void empty_cache();
  void set_limit(std::optional<Bytes> limit);
  [[nodiscard]] Bytes share_of_device(double fraction) const noexcept;

  bool begin_pool(PoolId pool, std::function<bool(StreamId)> filter, PoolUse use);
  bool end_pool(PoolId pool);
  bool retain_pool(PoolId pool);
  bool release_pool(PoolId pool);
  void empty_pool(PoolId pool);
  [[nodiscard]] std::optional<PoolCheckpoint> checkpoint_pool(PoolId pool);
  std::optional<PoolRestored> restore_pool(const PoolCheckpoint& checkpoint);

  void set_stream_order(std::span<const StreamId> streams);
  [[nodiscard]] std::vector<SegmentView> segments() const;
  [[nodiscard]] Bytes largest_free_block() const;

  AllocatorConfig config;
  DeviceModel& device;
  AllocatorStats stats;
  StreamPolicy policy = StreamPolicy::kWhenTold;
  std::optional<Bytes> limit;
  std::optional<OutOfMemoryInfo> out_of_memory;
  std::function<void(const SegmentChange&)> on_segment;

 private:
  // One request on its way.
  struct Request {
    std::uint64_t requested;
    std::uint64_t size;      // rounded
    std::uint64_t segment;   // what a new segment would have
    StreamCache* home;       // the pool and stream to be served from
    FreeList::Cursor place;  // where the block that was found is listed; the end: nowhere
    bool rejected = false;
  };

  // A block that the program has.
  struct HandedOut {
    std::uint64_t address = 0;
    BlockIndex block = kNoBlock;
  };

  struct ExpandableSegment {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t page = 0;
  };

  struct PrivatePool {
    int holders = 1;
    std::int64_t device_allocs = 0;  // not returned yet
    std::uint16_t small = 0;         // index of its small BlockPool; the large one is next
  };

  // Streams that a block was used on. What a capture recorded is over when the capture is.
  struct Uses {
    std::vector<std::uint32_t> streams;
    std::vector<std::uint32_t> captured;
  };

  // Events of one stream, oldest first; the first `done` of them have happened.
  struct StreamEvents {
    std::deque<BlockIndex> blocks;
    std::size_t done = 0;
  };

  struct Capture {
    PoolId pool;
    std::function<bool(StreamId)> filter;
    PoolUse use;
  };

  // simulator.cc
  std::uint32_t slot_of(StreamId stream);
  [[nodiscard]] StreamCache& home_for(std::uint64_t size, StreamId stream);
  [[nodiscard]] BlockPool& pool_for(std::uint64_t size, StreamId stream) const;
  // A free block that fits, still in its list.
  BlockIndex find_free(Request& request);
  BlockIndex find_expandable_fit(FreeList::Cursor& place) const;
  BlockIndex find_or_make(Request& request, StreamId stream);
  bool should_split(const CacheBlock& block, std::uint64_t size) const;
  Allocation hand_out(BlockIndex index, const Request& request, bool splits);
  BlockIndex split(BlockIndex index, const Request& request);
  void free_block(BlockIndex index);
  void try_merge(BlockIndex into, BlockIndex from);
  void join(BlockIndex into, BlockIndex from);
  BlockIndex new_segment(Request& request);
  Allocation fail(const Request& request);
  void insert_free(BlockIndex index);
  void erase_free(BlockIndex index);
  // Equal blocks are listed by address, by number, or by segment and address: `order` is then
  // nothing, the number, or what leads from the segment's address to a place behind all earlier
  // segments.
  [[nodiscard]] FreeKey key_of(const CacheBlock& block, BlockIndex index) const noexcept {
    return free_key(block.size, ((block.address & address_mask_) + block.order) & kLastRank, index);
  }
  [[nodiscard]] std::uint64_t order_of_segment(std::uint64_t address, std::uint64_t size) noexcept;
  [[nodiscard]] std::uint64_t order_of_piece(const CacheBlock& source) noexcept;

  // reclaim.cc
  [[nodiscard]] bool collects_garbage() const noexcept;
  void collect_garbage();
  bool release_oversize(const Request& request);
  // `captures`: a graph is being captured, so only pools that nobody holds are emptied.
  void release_cached(bool captures);
  void release_blocks(std::uint16_t pool);
  void release_block(BlockIndex index);
  [[nodiscard]] std::vector<std::uint32_t> stream_slots(const BlockPool& pool) const;

  // expandable.cc
  [[nodiscard]] std::uint64_t expandable_size(const CacheBlock& block) const;
  BlockIndex allocate_expandable(const Request& request);
  BlockIndex find_room(const Request& request);
  [[nodiscard]] bool has_room(BlockIndex index, std::uint64_t size) const;
  [[nodiscard]] std::uint64_t segment_reserve(std::uint64_t least) const;
  BlockIndex new_expandable_segment(const Request& request);
  bool map_block(BlockIndex index, std::uint64_t size);
  void unmap_block(BlockIndex index);
  void release_expandable(BlockIndex index);
  BlockIndex add_piece(BlockIndex of, std::uint64_t address, std::uint64_t size);

  // streams.cc
  void insert_events(BlockIndex index);
  void finish_event(BlockIndex index);
  void process_events();
  void free_deferred();
  void synchronize_and_free();
  [[nodiscard]] PrivatePool* private_pool(PoolId pool);
  // Whether a graph is being captured, as far as the release can tell. `stream`: by this one.
  [[nodiscard]] bool captures() const noexcept;
  [[nodiscard]] bool captures(StreamId stream) const;

  // checkpoint.cc
  [[nodiscard]] std::vector<BlockIndex> heads_of(PoolId pool) const;
  bool restore_segment(BlockIndex head, const PoolCheckpoint::Segment& segment,
                       PoolRestored& restored);

  // Adds to a statistic of everything and of the block's pool.
  static void increase(PoolStats& stat, bool small, std::uint64_t amount) noexcept {
    stat[0].increase(static_cast<std::int64_t>(amount));
    stat[small ? 1 : 2].increase(static_cast<std::int64_t>(amount));
  }
  static void decrease(PoolStats& stat, bool small, std::uint64_t amount) noexcept {
    stat[0].decrease(static_cast<std::int64_t>(amount));
    stat[small ? 1 : 2].decrease(static_cast<std::int64_t>(amount));
  }
  static void change(PoolStats& stat, bool small, std::int64_t amount) noexcept;
  void report(SegmentChange::Kind kind, const CacheBlock& block, std::uint64_t address,
              std::uint64_t size) const;

  static constexpr std::uint64_t kLastRank = (std::uint64_t{1} << 57) - 1;  // that a key can hold

  AllocatorRules rules_;
  std::uint64_t address_mask_ = 0;  // all bits where addresses decide among equals
  std::uint64_t next_order_ = 0;
  std::uint64_t max_split_ = 0;
  std::uint64_t reserved_ = 0;
  BlockTable blocks_;
  AddressMap<HandedOut> allocated_;
  std::vector<std::unique_ptr<BlockPool>> pools_;  // default small, default large, private ones
  std::vector<StreamId> streams_;                  // by slot
  std::vector<StreamId> stream_order_;
  std::unordered_map<std::uint32_t, std::uint32_t> slots_;

  std::vector<ExpandableSegment> segments_;  // by number; numbers of released ones are reused
  std::vector<std::uint32_t> free_segments_;

  std::unordered_map<BlockIndex, Uses> uses_;
  std::map<std::uint32_t, StreamEvents> events_;           // by stream slot
  std::unordered_map<std::uint64_t, BlockIndex> waiting_;  // blocks with events, by address
  std::vector<BlockIndex> deferred_;                       // freed while a capture was underway

  std::map<PoolId, PrivatePool> private_pools_;
  std::vector<PoolId> freeable_pools_;
  std::vector<Capture> captures_;
};

}  // namespace peakline
