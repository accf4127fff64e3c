// Where a tensor's bytes are, as the recording knows it.
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

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
// is inside it: its __tensor_flatten__ raises, or gives something else. Needs the GIL.
bool for_each_storage(const at::Tensor& tensor,
                      const std::function<void(c10::StorageImpl&)>& found);

// Adds every tensor in a tuple, list or dict, and in those inside it. Runs no Python code, which could
// change them meanwhile. Needs the GIL.
void collect_tensors(PyObject* object, std::vector<at::Tensor>& tensors, int depth = 4);

}  // namespace peakline::capture
