// The interpreter asks one function to run every frame; ours counts for the thread and passes it on. It
// costs a Python call some nanoseconds. torch.compile puts its own in front and calls ours.
#include "python_calls.h"

#include <torch/csrc/utils/pybind.h>

#include "vgpu/python_calls.h"

namespace peakline::bindings {
namespace {

// Who ran frames before; the interpreter's own unless somebody else counts, too.
_PyFrameEvalFunction before = nullptr;
// Ours is in the chain, in front or behind one that came later.
bool in_chain = false;

PyObject* counted(PyThreadState* thread, struct _PyInterpreterFrame* frame, int error) {
  vgpu::PythonCalls::add();
  return before(thread, frame, error);
}

}  // namespace

void count_python_calls(bool on) {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  const _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  if (on) vgpu::PythonCalls::begin();
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
