// The memory that a FakeTensor would have had.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include <peakline/ids.h>

#include "capture/recorder.h"

namespace peakline::capture {

struct FakeBlock {
  std::uint64_t recorder = 0;  // serial of the recording it was written to
  std::uint64_t address = 0;   // made up, different for every block
  std::uint64_t bytes = 0;
  DeviceId device;
};

// Writes the allocation of `tensor`'s storage unless the recording has it already, and its resize
// when its size has changed. Its data pointer then carries a FakeBlock whose end writes the free.
// `round_to`: what the device's allocator rounds sizes up to. Any thread; needs the GIL.
void note_fake_tensor(Recorder& recorder, const at::Tensor& tensor, DeviceId device,
                      std::uint64_t round_to);

// What note_fake_tensor put there; null for all other storages.
[[nodiscard]] const FakeBlock* fake_block(const c10::StorageImpl& storage) noexcept;

}  // namespace peakline::capture
