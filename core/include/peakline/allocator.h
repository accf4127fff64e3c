// torch's CUDA caching allocator, without a GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <peakline/allocator_config.h>
#include <peakline/allocator_stats.h>
#include <peakline/device_model.h>
#include <peakline/ids.h>
#include <peakline/units.h>

namespace peakline {

// What a private pool is filled for. A graph being captured must not be disturbed by giving cached
// memory back; from torch 2.13 on a MemPool may.
enum class PoolUse : std::uint8_t { kGraphCapture, kMemPool };

// What allocate() answers.
struct Allocation {
  Address address;  // 0: out of memory, see CachingAllocator::out_of_memory()
  Bytes bytes;      // the block's size: what counts as allocated

  [[nodiscard]] bool ok() const noexcept { return address != Address{}; }
};

// Why an allocation failed, in the numbers that torch's message shows.
struct OutOfMemoryInfo {
  Bytes requested;  // by the program
  Bytes segment;    // what the driver would have had to give: "Tried to allocate"
  StreamId stream;
  Bytes device_total;
  Bytes device_free;
  std::optional<Bytes> limit;  // of set_memory_fraction()
  Bytes allocated;
  Bytes reserved;
  Bytes private_pools;    // free bytes inside pools of CUDA graphs
  bool rejected = false;  // by throw_on_cudamalloc_oom, without freeing the cache first
};

// The text of torch.OutOfMemoryError for `info` on device `device`. Torch adds what other processes
// use; this one knows of none.
std::string out_of_memory_message(const OutOfMemoryInfo& info, int device = 0);

// A block of a segment, in address order.
struct BlockView {
  enum class State : std::uint8_t { kAllocated, kAwaitingFree, kFree };
  Address address;
  Bytes bytes;
  Bytes requested;  // of the last allocation, 0 for one that never was
  State state = State::kFree;
};

// A segment, or a contiguous mapped part of an expandable one.
struct SegmentView {
  Address address;
  Bytes bytes;
  Bytes allocated;
  Bytes active;
  Bytes requested;
  StreamId stream;
  PoolId pool;
  bool is_large = false;
  bool is_expandable = false;
  std::vector<BlockView> blocks;
};

// The blocks of a private pool at one moment, segment by segment.
struct PoolCheckpoint {
  struct Piece {
    Bytes bytes;
    bool allocated = false;
  };
  struct Segment {
    Address address;
    std::vector<Piece> pieces;
  };
  PoolId pool;
  std::vector<Segment> segments;
};

// What going back to a checkpoint did.
struct PoolRestored {
  std::vector<Address> freed;       // were allocated before
  std::vector<Allocation> created;  // are allocated now
};

// When a block that other streams used is free again.
enum class StreamPolicy : std::uint8_t {
  kWhenTold,        // after stream_done(), synchronize() or complete_free()
  kNextAllocation,  // other streams are taken to be done by the next allocation
};

// One device's allocator. Every call does what torch does at that point: the same blocks, the same
// segments, the same statistics. Given the driver's addresses it is exact; where the driver is a
// model, ties between equal free blocks follow the model's addresses.
// Time per call grows with the logarithm of the free blocks; memory is linear in blocks.
// Not thread-safe. Wrong calls (a free of something that is not allocated) are answered, not
// trusted.
class CachingAllocator {
 public:
  CachingAllocator(const AllocatorConfig& config, DeviceModel& device);  // `device` outlives this
  ~CachingAllocator();
  CachingAllocator(CachingAllocator&&) noexcept;
  CachingAllocator& operator=(CachingAllocator&&) noexcept;

  // `requested` must be above zero: torch answers empty tensors without its allocator.
  Allocation allocate(Bytes requested, StreamId stream = {});
  // Gives back what allocate() returned. A block that was used on other streams waits for them.
  // False when nothing is allocated at `address`.
  bool free(Address address);

  // record_stream: the block at `address` is also used on `stream`. False when there is none.
  bool record_stream(Address address, StreamId stream);
  // Everything that was put on `stream` so far is done; its blocks are free at the next allocation.
  void stream_done(StreamId stream);
  // The same for all streams (torch.cuda.synchronize).
  void synchronize();
  // A freed block is free for use now, whatever its streams (a recording says so). False when no
  // freed block waits at `address`.
  bool complete_free(Address address);
  void set_stream_policy(StreamPolicy policy);

  // torch.cuda.empty_cache.
  void empty_cache();
  // torch.cuda.set_per_process_memory_fraction; 1 takes the limit away.
  void set_memory_fraction(double fraction);
  // The same in bytes; nothing takes it away.
  void set_memory_limit(std::optional<Bytes> limit);
  [[nodiscard]] std::optional<Bytes> memory_limit() const;

  // Private pools. Between begin and end, allocations on streams that `filter` accepts come from
  // `pool`. Every begin, and every retain, holds the pool once; release_pool lets go, and after the
  // last one its free segments can be returned. False when the call does not fit the state.
  bool begin_pool(PoolId pool, std::function<bool(StreamId)> filter,
                  PoolUse use = PoolUse::kGraphCapture);
  bool end_pool(PoolId pool);
  bool retain_pool(PoolId pool);
  bool release_pool(PoolId pool);
  // Returns the free segments of this pool alone.
  void empty_pool(PoolId pool);
  // The pool as it is now, and back to it, as cudagraph trees do before they record another path.
  // Nothing when there is no such pool, or when it has lost a segment since.
  [[nodiscard]] std::optional<PoolCheckpoint> checkpoint_pool(PoolId pool);
  std::optional<PoolRestored> restore_pool(const PoolCheckpoint& checkpoint);

  // Streams in the order of their handles, which is the order in which torch walks its cache.
  // Streams that are not named come after these, by number.
  void set_stream_order(std::span<const StreamId> streams);

  // Called for every change of the segments, after it is done. Empty: nobody.
  void on_segment_change(std::function<void(const SegmentChange&)> callback);

  [[nodiscard]] const AllocatorStats& stats() const noexcept;
  void reset_peak_stats() noexcept;
  void reset_accumulated_stats() noexcept;

  // All segments with their blocks, by address.
  [[nodiscard]] std::vector<SegmentView> segments() const;
  // The last failure, if the last allocation failed.
  [[nodiscard]] const std::optional<OutOfMemoryInfo>& out_of_memory() const noexcept;
  [[nodiscard]] const AllocatorConfig& config() const noexcept;
  // The largest free block of any stream and pool.
  [[nodiscard]] Bytes largest_free_block() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace peakline
