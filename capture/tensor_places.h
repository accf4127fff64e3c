// Where a tensor's bytes are, as the recording knows it.
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

#include <cstdint>
#include <functional>

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
// sparse one; the inner tensors of a wrapper such as DTensor. Needs the GIL.
void for_each_storage(const at::Tensor& tensor,
                      const std::function<void(c10::StorageImpl&)>& found);

// Calls `found` with every tensor in a tuple, list or dict, and in those inside it. Needs the GIL.
void for_each_tensor(PyObject* object, const std::function<void(const at::Tensor&)>& found,
                     int depth = 4);

}  // namespace peakline::capture
