// The memory that a FakeTensor would have had: storages on the meta device, and when they end.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include <peakline/ids.h>

#include "capture/recorder.h"

namespace peakline::capture {

// What the recording knows of such a storage.
struct FakeBlock {
  std::uint64_t recorder = 0;  // serial of the recording it was written to
  std::uint64_t address = 0;   // made up, different for every storage, like no real one
  std::uint64_t bytes = 0;
  DeviceId device;
};

// The made-up address of a meta storage, from its first call on. When the storage ends, listeners are
// told of a free at that address, on whichever thread it happens. Any thread.
std::uint64_t fake_address(c10::StorageImpl& storage);
// Null for storages that fake_address() was not called for.
[[nodiscard]] const FakeBlock* fake_block(const c10::StorageImpl& storage) noexcept;

// Writes the allocation of `tensor`'s storage unless the recording has it already, and its resize
// when its size has changed; its end writes the free. `round_to`: what the device's allocator rounds
// sizes up to. Any thread; needs the GIL.
void note_fake_tensor(Recorder& recorder, const at::Tensor& tensor, DeviceId device,
                      std::uint64_t round_to);

}  // namespace peakline::capture
