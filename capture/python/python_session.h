// A run of a Python program being tracked: a session, and the calls of Python's modules.
#pragma once

#include <memory>
#include <string>

#include "capture/python/module_calls.h"
#include "capture/session.h"

namespace peakline::capture {

// All functions need the GIL.
class PythonSession final : public Session {
 public:
  static Result<std::unique_ptr<PythonSession>> start(Spool& spool, const SessionOptions& options,
                                                      PyTypeObject* module_type,
                                                      ModuleCalls::Discover discover);
  ~PythonSession() override;

  Status stop() override;

  ModuleId add_module(PyObject* module, const std::string& path, const std::string& type,
                      ModuleId parent);
  void watch_type(PyTypeObject* type) { modules_.watch(type); }
  // None when it is not known.
  [[nodiscard]] ModuleId find_module(PyObject* module) const { return modules_.find(module); }
  // What the dict of an optimizer's state keeps.
  void label_state(PyObject* state);
  void adopt_state(PyObject* state);

 private:
  PythonSession(Recorder& recorder, const SessionOptions& options, PyTypeObject* module_type,
                ModuleCalls::Discover discover);
  void label_inputs(PyObject* args, PyObject* kwargs);

  ModuleCalls modules_;
};

}  // namespace peakline::capture
