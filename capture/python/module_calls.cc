#include "capture/python/module_calls.h"

#include "capture/module_scope.h"

namespace peakline::capture {
namespace {

// A call may be on its way through our slot long after it was given back.
ternaryfunc g_original = nullptr;
ModuleCalls* g_calls = nullptr;

// What we do beside the program's call must never disturb it: no exception of C++ may pass through a
// slot of Python's, and no Python error may be left behind.
template <class F>
void undisturbing(Recorder& recorder, F&& note) noexcept {
  undisturbed(recorder, note);
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
}

bool is_alive_at(PyObject* weak, PyObject* module) noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* target = nullptr;
  if (PyWeakref_GetRef(weak, &target) != 1) return false;
  Py_DECREF(target);
  return target == module;
#else
  return PyWeakref_GetObject(weak) == module;
#endif
}

std::uint64_t address_of(PyObject* module) noexcept {
  return reinterpret_cast<std::uint64_t>(module);
}

}  // namespace

ModuleCalls::ModuleCalls(PyTypeObject* module_type, Discover discover, RootCall root_call)
    : discover_(std::move(discover)), root_call_(std::move(root_call)) {
  if (g_original == nullptr) g_original = module_type->tp_call;
  watch(module_type);
  g_calls = this;
}

ModuleCalls::~ModuleCalls() { detach(); }

void ModuleCalls::detach() {
  if (g_calls != this) return;
  g_calls = nullptr;
  for (PyTypeObject* type : replaced_) {
    if (type->tp_call == &ModuleCalls::call) type->tp_call = g_original;
    Py_DECREF(type);
  }
  known_.for_each([](const Known& known) { Py_DECREF(known.weak); });
  replaced_.clear();
  known_ = {};
  // It may hold who holds the session: a ring that Python's collector cannot see.
  discover_ = nullptr;
}

void ModuleCalls::watch(PyTypeObject* type) {
  // A type with a call of its own in C keeps it.
  if (type->tp_call == g_original) {
    Py_INCREF(type);
    replaced_.push_back(type);
    type->tp_call = &ModuleCalls::call;
  }
  PyObject* below = PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyType_Type), "__subclasses__",
                                        "O", reinterpret_cast<PyObject*>(type));
  if (below == nullptr) return PyErr_Clear();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(below); ++i) {
    watch(reinterpret_cast<PyTypeObject*>(PyList_GET_ITEM(below, i)));
  }
  Py_DECREF(below);
}

PyObject* ModuleCalls::call(PyObject* self, PyObject* args, PyObject* kwargs) {
  Recorder* recorder = current_recorder();
  if (recorder == nullptr || g_calls == nullptr) return g_original(self, args, kwargs);
  return g_calls->noted_call(*recorder, self, args, kwargs);
}

PyObject* ModuleCalls::noted_call(Recorder& recorder, PyObject* self, PyObject* args,
                                  PyObject* kwargs) {
  ModuleId module;
  undisturbing(recorder, [&] { module = identify(self, running_module(recorder)); });
  if (module == ModuleId{}) return g_original(self, args, kwargs);

  if (outside_modules(recorder)) undisturbing(recorder, [&] { root_call_(args, kwargs); });
  const ModuleScope scope(recorder, module);
  return g_original(self, args, kwargs);
}

ModuleId ModuleCalls::find(PyObject* module) const noexcept {
  const Known* known = known_.find(address_of(module));
  if (known == nullptr || !is_alive_at(known->weak, module)) return {};
  return known->id;
}

ModuleId ModuleCalls::identify(PyObject* module, ModuleId around) {
  const ModuleId known = find(module);
  if (known != ModuleId{}) return known;
  const Discover discover = discover_;  // it may end the watching
  discover(module, around);
  return find(module);
}

void ModuleCalls::add(PyObject* module, ModuleId id) {
  PyObject* weak = PyWeakref_NewRef(module, nullptr);
  if (weak == nullptr) return PyErr_Clear();
  Known* before = known_.find(address_of(module));
  if (before == nullptr) {
    known_.insert({address_of(module), weak, id});
    return;
  }
  Py_DECREF(before->weak);
  *before = {address_of(module), weak, id};
}

}  // namespace peakline::capture
