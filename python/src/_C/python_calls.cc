// The interpreter asks one function to run every frame; ours counts and passes it on. It sees all
// threads, and costs a Python call some nanoseconds. torch.compile puts its own in front and calls ours.
#include "python_calls.h"

#include <torch/csrc/utils/pybind.h>

#include "vgpu/gpu_clock.h"

namespace peakline::bindings {
namespace {

// Who ran frames before; the interpreter's own unless somebody else counts, too.
_PyFrameEvalFunction before = nullptr;
// Ours is in the chain, in front or behind one that came later.
bool in_chain = false;

PyObject* counted(PyThreadState* thread, struct _PyInterpreterFrame* frame, int error) {
  // One writer at a time, by the interpreter's lock: no locked instruction is needed.
  auto& calls = vgpu::python_calls;
  calls.store(calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return before(thread, frame, error);
}

}  // namespace

void count_python_calls(bool on) {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  const _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  if (on && !in_chain) {
    before = now;
    _PyInterpreterState_SetEvalFrameFunc(interpreter, &counted);
    in_chain = true;
  } else if (!on && now == &counted) {
    // Somebody who came later and calls ours keeps it: it only counts.
    _PyInterpreterState_SetEvalFrameFunc(interpreter, before);
    in_chain = false;
  }
}

}  // namespace peakline::bindings
