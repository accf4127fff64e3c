// The words of allocator tests: a device, an allocator, named blocks.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <peakline/allocator.h>

namespace peakline::testing {

class AllocatorWorld {
 public:
  explicit AllocatorWorld(const std::string& conf = "", Bytes total = 64_GiB,
                          TorchVersion torch = {}) {
    DriverOptions options;
    options.total = total;
    options.kept = Bytes{};
    device = make_driver_model(options);
    const Result<AllocatorConfig> config = AllocatorConfig::parse(conf, torch);
    if (!config.ok()) throw std::invalid_argument(config.status().message());
    allocator = std::make_unique<CachingAllocator>(*config, *device);
    allocator->on_segment_change(
        [this](const SegmentChange& change) { changes.push_back(change); });
  }

  // False when it failed.
  bool alloc(const std::string& name, Bytes bytes, std::uint32_t stream = 0) {
    const Allocation got = allocator->allocate(bytes, StreamId(stream));
    if (got.ok()) blocks[name] = got;
    return got.ok();
  }
  void free(const std::string& name) { allocator->free(blocks.at(name).address); }
  [[nodiscard]] std::uint64_t at(const std::string& name) const {
    return blocks.at(name).address.raw();
  }
  [[nodiscard]] Bytes size(const std::string& name) const { return blocks.at(name).bytes; }

  [[nodiscard]] const AllocatorStats& stats() const { return allocator->stats(); }
  [[nodiscard]] Bytes reserved() const { return Bytes(stats().reserved_bytes[0].current); }
  [[nodiscard]] Bytes allocated() const { return Bytes(stats().allocated_bytes[0].current); }
  [[nodiscard]] Bytes active() const { return Bytes(stats().active_bytes[0].current); }

  std::unique_ptr<DeviceModel> device;
  std::unique_ptr<CachingAllocator> allocator;
  std::map<std::string, Allocation> blocks;
  std::vector<SegmentChange> changes;
};

// Everything that must hold between two calls: segments tile without gaps, no two free neighbours,
// totals are sums. Returns what does not.
inline std::string broken_rule(const CachingAllocator& allocator) {
  std::int64_t reserved = 0, allocated = 0, active = 0, requested = 0, blocks = 0;
  std::uint64_t last_end = 0;
  for (const SegmentView& segment : allocator.segments()) {
    if (segment.address.raw() < last_end) return "segments overlap";
    last_end = segment.address.raw() + static_cast<std::uint64_t>(segment.bytes.raw());
    std::uint64_t at = segment.address.raw();
    bool free_before = false;
    for (const BlockView& block : segment.blocks) {
      if (block.address.raw() != at) return "a block does not begin where the last one ended";
      if (block.bytes <= Bytes{} || block.bytes.raw() % 512 != 0) return "a block has an odd size";
      at += static_cast<std::uint64_t>(block.bytes.raw());
      const bool is_free = block.state == BlockView::State::kFree;
      if (is_free && free_before) return "two free blocks are neighbours";
      free_before = is_free;
      if (block.state == BlockView::State::kAllocated) {
        allocated += block.bytes.raw();
        ++blocks;
      }
      if (!is_free) {
        active += block.bytes.raw();
        requested += block.requested.raw();
        if (block.requested > block.bytes) return "a block is smaller than what was asked for";
      }
    }
    if (at != last_end) return "a segment's blocks do not fill it";
    reserved += segment.bytes.raw();
  }
  const AllocatorStats& stats = allocator.stats();
  const auto all = [](const PoolStats& stat) { return stat[0].current; };
  if (all(stats.reserved_bytes) != reserved) return "reserved_bytes is not the sum of segments";
  if (all(stats.allocated_bytes) != allocated) return "allocated_bytes is not the sum of blocks";
  if (all(stats.active_bytes) != active) return "active_bytes is not the sum of blocks";
  if (all(stats.requested_bytes) != requested) return "requested_bytes is not the sum of blocks";
  if (all(stats.allocation) != blocks) return "allocation does not count the blocks";
  for (const PoolStats* stat :
       {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split,
        &stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes,
        &stats.inactive_split_bytes, &stats.requested_bytes}) {
    if ((*stat)[0].current != (*stat)[1].current + (*stat)[2].current) return "pools do not add up";
    if ((*stat)[1].current < 0 || (*stat)[2].current < 0) return "a statistic is below zero";
  }
  return {};
}

}  // namespace peakline::testing
