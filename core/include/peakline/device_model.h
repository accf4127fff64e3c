// The device below the caching allocator: how much memory it has, and where the driver puts things.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <peakline/ids.h>
#include <peakline/units.h>

namespace peakline {

// A pool of its own for a CUDA graph or a torch.cuda.MemPool; 0 is the default pool.
using PoolId = Id<struct PoolTag, std::uint32_t>;

// What happens to segments, as it happens.
struct SegmentChange {
  enum class Kind : std::uint8_t { kAlloc, kFree, kMap, kUnmap };
  Kind kind = Kind::kAlloc;
  Address address;
  Bytes bytes;
  StreamId stream;
  PoolId pool;
};

// What the allocator asks from the driver. All sizes are multiples of 2 MiB; so are the addresses
// that come back. Not thread-safe; outlives the allocator that uses it.
class DeviceModel {
 public:
  virtual ~DeviceModel() = default;

  // cudaMalloc: the address of `bytes` of new memory, or nothing when the device is full.
  virtual std::optional<Address> allocate(Bytes bytes) = 0;
  // cudaFree, of exactly one earlier allocation.
  virtual void release(Address address, Bytes bytes) = 0;

  // cuMemAddressReserve and cuMemAddressFree: address space without memory.
  virtual Address reserve_addresses(Bytes bytes) = 0;
  virtual void release_addresses(Address address, Bytes bytes) = 0;

  // cuMemCreate and cuMemRelease: memory for a reserved range. False when the device is full.
  virtual bool map(Bytes bytes) = 0;
  virtual void unmap(Bytes bytes) = 0;

  // The first kernel was launched: from now on the driver has what it needs for that elsewhere.
  virtual void launched() {}
  // The driver needs memory for something of its own from now on: a library's kernels, streams. It
  // comes out of what is in use already, and lies where a segment of this size would.
  virtual void take_own(Bytes) {}

  // cudaMemGetInfo.
  [[nodiscard]] virtual Bytes total() const = 0;
  [[nodiscard]] virtual Bytes free() const = 0;
};

// How a device starts.
struct DriverOptions {
  Bytes total{std::int64_t{1} << 46};  // cudaMemGetInfo's total; more than any device has
  Bytes in_use{0};                     // by the CUDA context and others, before the first segment
  // Address space that the driver itself uses in its newest chunk until the first kernel is launched.
  // 0: a program without kernels, and without the driver's own ranges.
  Bytes startup{414_MiB};
  // How many segments are taken before that, where nobody says when it is.
  int startup_segments = 2;
  Address top{0x7f0000000000};  // address space is taken from here downwards
  Bytes kept{2_MiB};            // what the driver shows as free and never gives out
  // It gives out no more than this in all. The allocator's own limit is no such end: where segments
  // grow by pages, torch asks whether the request fits and then takes whole pages.
  std::optional<Bytes> most = std::nullopt;
};

// The driver's placement, as seen on real GPUs (docs/allocator.md tells how): address space comes
// in chunks of whole 32 MiB, each put into the highest hole that can hold it; a request goes to the
// newest chunk that has room, at its lowest fitting address; a chunk that is empty again is given
// back. Cost grows with the number of chunks only.
std::unique_ptr<DeviceModel> make_driver_model(const DriverOptions& options = {});

// Gives out the addresses of a recorded run, whose segment changes are `changes`, as long as what
// is asked for agrees with them; at the first difference it falls back to the driver model for
// good.
std::unique_ptr<DeviceModel> make_recorded_device(const std::vector<SegmentChange>& changes,
                                                  const DriverOptions& options = {});

}  // namespace peakline
