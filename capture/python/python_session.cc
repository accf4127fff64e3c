#include "capture/python/python_session.h"

#include <utility>
#include <vector>

#include "capture/native_frames.h"
#include "capture/python/python_frames.h"
#include "capture/python/python_tensors.h"

namespace peakline::capture {

Result<std::unique_ptr<PythonSession>> PythonSession::start(Spool& spool,
                                                            const SessionOptions& options,
                                                            PyTypeObject* module_type,
                                                            ModuleCalls::Discover discover) {
  Result<Recorder*> recorder = begin(spool, options);
  if (!recorder.ok()) return recorder.status();
  know_python_frames();
  if (options.stacks.cpp) prepare_native_frames();
  know_python_tensors();
  return std::unique_ptr<PythonSession>(
      new PythonSession(**recorder, options, module_type, std::move(discover)));
}

PythonSession::PythonSession(Recorder& recorder, const SessionOptions& options,
                             PyTypeObject* module_type, ModuleCalls::Discover discover)
    : Session(recorder, options),
      modules_(module_type, std::move(discover),
               [this](PyObject* args, PyObject* kwargs) { label_inputs(args, kwargs); }) {}

PythonSession::~PythonSession() { static_cast<void>(PythonSession::stop()); }

Status PythonSession::stop() {
  modules_.detach();
  return Session::stop();
}

ModuleId PythonSession::add_module(PyObject* module, const std::string& path,
                                   const std::string& type, ModuleId parent) {
  const ModuleId id = Session::add_module(path, type, parent);
  modules_.add(module, id);
  return id;
}

void PythonSession::label_state(PyObject* state) {
  labels().label_state([state] { return collect_state(state); });
}

void PythonSession::adopt_state(PyObject* state) { labels().adopt_state(collect_state(state)); }

void PythonSession::label_inputs(PyObject* args, PyObject* kwargs) {
  std::vector<at::Tensor> tensors;
  collect_tensors(args, tensors);
  collect_tensors(kwargs, tensors);
  labels().label_inputs(tensors);
}

}  // namespace peakline::capture
