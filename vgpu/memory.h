// The memory of the virtual GPUs: one simulated allocator a device, and the recording's view of it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <peakline/allocator.h>
#include <peakline/allocator_config.h>
#include <peakline/device_model.h>
#include <peakline/device_profile.h>
#include <peakline/ids.h>
#include <peakline/kernel_memory.h>
#include <peakline/status.h>

namespace peakline::capture {
class Recorder;
}

namespace peakline::vgpu {

inline constexpr int kMaxDevices = 8;

struct MemoryOptions {
  int devices = 1;
  DeviceProfile profile;
  AllocatorConfig config;
  std::string settings;        // the text behind `config`, as the environment had it
  std::optional<Bytes> limit;  // of what the allocator may reserve
};

// An op as the recording names it; looked up once per recording.
struct OpName {
  std::string text;
  std::uint64_t recorder = 0;
  OpId id;
};

// What one allocation gave. `address` 0: nothing was asked for.
struct Block {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};

// Which allocations a private pool serves between begin_pool() and end_pool().
struct PoolFilling {
  enum class From : std::uint8_t { kEverywhere, kThisThread, kStreams };
  From from = From::kEverywhere;
  std::vector<std::uint32_t> streams;  // of kStreams
  PoolUse use = PoolUse::kMemPool;
};

// All devices of one virtual GPU session. Thread-safe.
//
// Addresses lie outside what a processor can reach (bits 47 to 55 are not all alike), so a kernel
// that would touch them faults instead of reading something else; each device has its own range.
class Memory {
 public:
  explicit Memory(const MemoryOptions& options);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // From now on everything is written into `recorder`, too. Null: into nothing.
  void record_into(capture::Recorder* recorder);

  // The allocator's settings, which count from its first allocation on, as torch's do: until then
  // they may be replaced. False when they are fixed already.
  bool configure(std::string settings, const AllocatorConfig& config);
  // The text of those that count, as the environment or the program gave it.
  [[nodiscard]] std::string settings();
  // Whether something has been allocated since an allocation last failed, on any device.
  [[nodiscard]] bool allocated_since_failure();

  // Nothing when the device is out of memory; then out_of_memory() tells why. Throws when the
  // program has put settings into the environment that torch would refuse.
  std::optional<Block> allocate(int device, std::uint64_t bytes, std::uint32_t stream, OpName* op,
                                CategoryId category = {}, Certainty certainty = Certainty::kExact);
  void free(int device, std::uint64_t address);
  // What torch.OutOfMemoryError says about the last failure on this device.
  std::string out_of_memory(int device);

  void record_stream(int device, std::uint64_t address, std::uint32_t stream);
  void stream_done(int device, std::uint32_t stream);
  void synchronize(int device);

  // Private pools (CUDA graphs, MemPool): see CachingAllocator. False when the call does not fit the
  // state.
  bool begin_pool(int device, PoolId pool, PoolFilling filling);
  // While `pool` is filled from chosen streams: from this one, too.
  void add_pool_stream(int device, PoolId pool, std::uint32_t stream);
  bool end_pool(int device, PoolId pool);
  bool retain_pool(int device, PoolId pool);
  bool release_pool(int device, PoolId pool);
  void empty_pool(int device, PoolId pool);
  [[nodiscard]] std::optional<PoolCheckpoint> checkpoint_pool(int device, PoolId pool);
  std::optional<PoolRestored> restore_pool(int device, const PoolCheckpoint& checkpoint);

  void empty_cache();
  void set_fraction(int device, double fraction);
  [[nodiscard]] double fraction(int device);
  void reset_peak(int device);
  void reset_accumulated(int device);
  [[nodiscard]] std::vector<std::pair<std::string, std::int64_t>> stats(int device);
  [[nodiscard]] std::vector<SegmentView> segments(int device);
  // cudaMemGetInfo: free, total.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> info(int device);

  // A kernel runs on the device: of interest to the driver when it is the first.
  void launched(int device) {
    if (!launched_[static_cast<std::size_t>(device)].load(std::memory_order_relaxed)) {
      launched_first(device);
    }
  }

  // The first of these on a device makes the driver take memory of its own among the segments.
  enum class DriverUse : std::uint8_t { kCublas, kStreams };
  void driver_needs(int device, DriverUse use) {
    if (!taken_[static_cast<std::size_t>(use)][static_cast<std::size_t>(device)].load(
            std::memory_order_relaxed)) {
      driver_takes(device, use);
    }
  }

  [[nodiscard]] int devices() const noexcept { return static_cast<int>(devices_.size()); }
  [[nodiscard]] const DeviceProfile& profile() const noexcept { return options_.profile; }
  [[nodiscard]] const AllocatorConfig& config() const noexcept { return options_.config; }

 private:
  struct Device {
    std::unique_ptr<DeviceModel> model;
    std::unique_ptr<CachingAllocator> allocator;
    DeviceId recorded;
    double fraction = 1.0;
    std::map<PoolId, std::shared_ptr<std::set<std::uint32_t>>> filling;  // streams, while filled
  };

  // Not in a forked child, where nobody takes what is pushed.
  [[nodiscard]] bool records() const noexcept;
  void launched_first(int device);
  void driver_takes(int device, DriverUse use);
  void make_allocators();
  void settle();
  void on_segment(int device, const SegmentChange& change);
  void write_alloc(const Device& device, const Block& block, std::uint64_t requested,
                   std::uint32_t stream, OpName* op, CategoryId category, Certainty certainty);

  MemoryOptions options_;
  std::mutex mutex_;
  std::vector<Device> devices_;
  using EachDevice = std::array<std::atomic<bool>, 128>;  // torch has no more
  EachDevice launched_{};
  std::array<EachDevice, 2> taken_{};  // by DriverUse
  capture::Recorder* recorder_ = nullptr;
  bool settled_ = false;  // something was allocated
  bool told_ = false;     // the program gave settings, which count before the environment's
  bool allocated_since_failure_ = false;
};

}  // namespace peakline::vgpu
