// Typed steps on the simulated allocator; what must hold is checked after each.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <variant>
#include <vector>

#include "allocator_fixture.h"

namespace {

using namespace peakline;

struct Allocate {
  std::int64_t bytes;
  StreamId stream;
};
struct Free {
  std::size_t index;
};
struct RecordStream {
  std::size_t index;
  StreamId stream;
};
struct StreamDone {
  StreamId stream;
};
struct CompleteFree {
  std::size_t index;
};
struct EmptyCache {};
struct SetLimit {
  std::int64_t mib;  // 0: none
};
struct BeginPool {
  PoolId pool;
};
struct EndPool {
  PoolId pool;
};
struct ReleasePool {
  PoolId pool;
};
using Step = std::variant<Allocate, Free, RecordStream, StreamDone, CompleteFree, EmptyCache,
                          SetLimit, BeginPool, EndPool, ReleasePool>;

// Bytes as numbers; zeros after the end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::uint32_t take(unsigned bytes) {
    std::uint32_t value = 0;
    const std::size_t n = std::min<std::size_t>(bytes, size_);
    std::memcpy(&value, data_, n);
    data_ += n;
    size_ -= n;
    return value;
  }
  [[nodiscard]] bool empty() const { return size_ == 0; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

Step next_step(Input& in) {
  const std::uint32_t kind = in.take(1);
  switch (kind % 16) {
    default:
      return Allocate{static_cast<std::int64_t>(in.take(4)) << in.take(1) % 8, StreamId(kind >> 6)};
    case 7:
    case 8:
    case 9:
    case 10:
      return Free{in.take(2)};
    case 11:
      return RecordStream{in.take(1), StreamId(in.take(1) % 4)};
    case 12:
      return StreamDone{StreamId(in.take(1) % 4)};
    case 13:
      return CompleteFree{in.take(1)};
    case 14:
      if (kind >> 6 == 0) return EmptyCache{};
      return SetLimit{in.take(2)};
    case 15: {
      const PoolId pool(in.take(1) % 3);
      if (kind >> 6 == 0) return ReleasePool{pool};
      if (kind >> 6 == 1) return EndPool{pool};
      return BeginPool{pool};
    }
  }
}

struct World {
  explicit World(const AllocatorConfig& config)
      : device(make_driver_model({.total = 16_GiB, .in_use = {}})), allocator(config, *device) {}

  void operator()(const Allocate& step) {
    const Allocation got = allocator.allocate(Bytes(step.bytes), step.stream);
    if (got.ok() == allocator.out_of_memory().has_value()) std::abort();
    if (!got.ok()) return;
    if (got.bytes < Bytes(step.bytes)) std::abort();
    live.push_back(got.address);
  }
  void operator()(const Free& step) {
    if (live.empty()) return;
    Address& address = live[step.index % live.size()];
    if (!allocator.free(address)) std::abort();
    freed.push_back(address);
    address = live.back();
    live.pop_back();
  }
  void operator()(const RecordStream& step) {
    if (!live.empty()) allocator.record_stream(live[step.index % live.size()], step.stream);
  }
  void operator()(const StreamDone& step) { allocator.stream_done(step.stream); }
  void operator()(const CompleteFree& step) {
    if (!freed.empty()) allocator.complete_free(freed[step.index % freed.size()]);
  }
  void operator()(const EmptyCache&) { allocator.empty_cache(); }
  void operator()(const SetLimit& step) {
    std::optional<Bytes> limit;
    if (step.mib != 0) limit = Bytes(step.mib << 20);
    allocator.set_memory_limit(limit);
  }
  void operator()(const BeginPool& step) {
    allocator.begin_pool(step.pool, [](StreamId stream) { return stream == StreamId(1); });
  }
  void operator()(const EndPool& step) { allocator.end_pool(step.pool); }
  void operator()(const ReleasePool& step) { allocator.release_pool(step.pool); }

  std::unique_ptr<DeviceModel> device;
  CachingAllocator allocator;
  std::vector<Address> live;
  std::vector<Address> freed;
};

constexpr const char* kConfs[] = {
    "",
    "expandable_segments:True",
    "max_split_size_mb:40",
    "garbage_collection_threshold:0.5",
    "expandable_segments:True,max_split_size_mb:40",
    "roundup_power2_divisions:[4:2,32:8,>:4]",
    "max_split_size_mb:30,max_non_split_rounding_mb:90,large_segment_size_mb:24",
    "expandable_segments:True,large_segment_size_mb:48",
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input in(data, size);
  const auto config = AllocatorConfig::parse(kConfs[in.take(1) % std::size(kConfs)]);
  World world(*config);
  while (!in.empty()) {
    std::visit(world, next_step(in));
    if (!testing::broken_rule(world.allocator).empty()) std::abort();
  }
  return 0;
}
