// Where a tensor's bytes are, as the recording knows it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include <peakline/ids.h>

#include "capture/devices.h"

namespace peakline::capture {

struct Place {
  DeviceId device;
  std::uint64_t address = 0;  // 0: nowhere
  std::uint64_t bytes = 0;
};

Place place_of(const c10::StorageImpl& storage, Devices& devices);

// Calls `found` with every storage behind `tensor`: one for a plain tensor; indices and values of a
// sparse one; the inner tensors of a wrapper such as DTensor. False when a wrapper does not say what
// is inside it: its __tensor_flatten__ raises, or gives something else. Needs the GIL where there is one.
bool for_each_storage(const at::Tensor& tensor,
                      const std::function<void(c10::StorageImpl&)>& found);

// The parts of a wrapper tensor whose class is Python's; throws what Python raises. Without one, as in
// a C++ program, such tensors do not say what is inside them.
using WrapperParts = std::vector<at::Tensor> (*)(const at::Tensor& wrapper);
void set_wrapper_parts(WrapperParts parts) noexcept;

}  // namespace peakline::capture
