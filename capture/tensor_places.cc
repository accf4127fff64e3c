#include "capture/tensor_places.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "capture/fake_storage.h"

namespace peakline::capture {
namespace {

// The parts of a wrapper tensor, by torch's own protocol for them.
void for_each_inner(const at::Tensor& tensor, const std::function<void(c10::StorageImpl&)>& found) {
  const py::object wrapper = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
  if (!py::hasattr(wrapper, "__tensor_flatten__")) return;
  const py::tuple parts = wrapper.attr("__tensor_flatten__")();
  for (const py::handle name : py::reinterpret_borrow<py::object>(parts[0])) {
    const py::object inner = py::getattr(wrapper, name);
    if (THPVariable_Check(inner.ptr())) for_each_storage(THPVariable_Unpack(inner.ptr()), found);
  }
}

void for_each_sparse_part(const at::Tensor& tensor,
                          const std::function<void(c10::StorageImpl&)>& found) {
  const auto layout = tensor.layout();
  if (layout == at::kSparse) {
    for_each_storage(tensor._indices(), found);
    return for_each_storage(tensor._values(), found);
  }
  const bool by_row = layout == at::kSparseCsr || layout == at::kSparseBsr;
  for_each_storage(by_row ? tensor.crow_indices() : tensor.ccol_indices(), found);
  for_each_storage(by_row ? tensor.col_indices() : tensor.row_indices(), found);
  for_each_storage(tensor.values(), found);
}

bool is_sparse(const at::Tensor& tensor) {
  const auto layout = tensor.layout();
  return layout == at::kSparse || layout == at::kSparseCsr || layout == at::kSparseCsc ||
         layout == at::kSparseBsr || layout == at::kSparseBsc;
}

}  // namespace

Place place_of(const c10::StorageImpl& storage, Devices& devices) {
  if (const FakeBlock* fake = fake_block(storage))
    return {fake->device, fake->address, fake->bytes};
  const void* data = storage.data_ptr().get();
  if (data == nullptr || storage.device().is_meta()) return {};
  return {devices.of(storage.device()), reinterpret_cast<std::uint64_t>(data), storage.nbytes()};
}

void for_each_storage(const at::Tensor& tensor,
                      const std::function<void(c10::StorageImpl&)>& found) {
  if (!tensor.defined()) return;
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->has_storage() && impl->unsafe_storage()) {
    c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    if (storage->data_ptr().get_context() != nullptr || storage->data_ptr().get() != nullptr) {
      return found(*storage);
    }
  }
  if (impl->key_set().has(c10::DispatchKey::Python)) return for_each_inner(tensor, found);
  if (is_sparse(tensor)) for_each_sparse_part(tensor, found);
}

void for_each_tensor(PyObject* object, const std::function<void(const at::Tensor&)>& found,
                     int depth) {
  if (object == nullptr || depth == 0) return;
  if (THPVariable_Check(object)) return found(THPVariable_Unpack(object));
  if (PyTuple_Check(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
      for_each_tensor(PyTuple_GET_ITEM(object, i), found, depth - 1);
    }
  } else if (PyList_Check(object)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i) {
      for_each_tensor(PyList_GET_ITEM(object, i), found, depth - 1);
    }
  } else if (PyDict_Check(object)) {
    Py_ssize_t position = 0;
    PyObject* value = nullptr;
    while (PyDict_Next(object, &position, nullptr, &value) != 0) {
      for_each_tensor(value, found, depth - 1);
    }
  }
}

}  // namespace peakline::capture
