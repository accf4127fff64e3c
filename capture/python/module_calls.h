// Sees every call of an nn.Module, without hooks.
//
// The call slot of nn.Module's types is replaced by ours, which notes the call and passes it on.
// Nothing that Python code can look at changes: no hook is registered, `__call__` is the same
// function, so torch.compile, other trackers and users' hooks behave as if nobody watched; and
// leaving is noted however a call ends.
#pragma once

#include <Python.h>

#include <cstdint>
#include <functional>
#include <vector>

#include <peakline/address_map.h>
#include <peakline/ids.h>

#include "capture/recorder.h"

namespace peakline::capture {

// All functions need the GIL. At most one exists.
class ModuleCalls {
 public:
  // `module_type` is torch.nn.Module. `discover(module, around)` is called for a module that is not
  // known yet, and registers it; `around` is the module that calls it, 0 at the outermost.
  // `root_call(args, kwargs)` is called before an outermost forward.
  using Discover = std::function<void(PyObject* module, ModuleId around)>;
  using RootCall = std::function<void(PyObject* args, PyObject* kwargs)>;
  ModuleCalls(PyTypeObject* module_type, Discover discover, RootCall root_call);
  ~ModuleCalls();
  ModuleCalls(const ModuleCalls&) = delete;
  ModuleCalls& operator=(const ModuleCalls&) = delete;

  // Gives the slots back. Nothing is seen afterwards.
  void detach();

  // Sees calls of this type's instances, too, and of the types below it. Python gives every new
  // class a fresh slot, so classes made later have to be told.
  void watch(PyTypeObject* type);
  void add(PyObject* module, ModuleId id);
  // None when the module is not known.
  [[nodiscard]] ModuleId find(PyObject* module) const noexcept;

 private:
  struct Known {
    std::uint64_t address = 0;  // the module's
    PyObject* weak = nullptr;   // owned; tells whether the address still is that module
    ModuleId id;
  };

  static PyObject* call(PyObject* self, PyObject* args, PyObject* kwargs);
  PyObject* noted_call(Recorder& recorder, PyObject* self, PyObject* args, PyObject* kwargs);
  ModuleId identify(PyObject* module, ModuleId around);

  Discover discover_;
  RootCall root_call_;
  AddressMap<Known> known_;
  std::vector<PyTypeObject*> replaced_;  // owned references
};

}  // namespace peakline::capture
