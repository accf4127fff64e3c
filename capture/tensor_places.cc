#include "capture/tensor_places.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "capture/fake_storage.h"

namespace peakline::capture {
namespace {

// The parts of a wrapper tensor, by torch's own protocol for them. Throws what Python raises.
std::vector<at::Tensor> inner_tensors(const at::Tensor& tensor) {
  std::vector<at::Tensor> inner;
  const py::object wrapper = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
  if (!py::hasattr(wrapper, "__tensor_flatten__")) return inner;
  const py::tuple parts = wrapper.attr("__tensor_flatten__")();
  for (const py::handle name : py::reinterpret_borrow<py::object>(parts[0])) {
    const py::object part = py::getattr(wrapper, name);
    if (THPVariable_Check(part.ptr())) inner.push_back(THPVariable_Unpack(part.ptr()));
  }
  return inner;
}

std::vector<at::Tensor> sparse_parts(const at::Tensor& tensor) {
  const auto layout = tensor.layout();
  if (layout == at::kSparse) return {tensor._indices(), tensor._values()};
  const bool by_row = layout == at::kSparseCsr || layout == at::kSparseBsr;
  return {by_row ? tensor.crow_indices() : tensor.ccol_indices(),
          by_row ? tensor.col_indices() : tensor.row_indices(), tensor.values()};
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

bool for_each_storage(const at::Tensor& tensor,
                      const std::function<void(c10::StorageImpl&)>& found) {
  if (!tensor.defined()) return true;
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->has_storage() && impl->unsafe_storage()) {
    c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    if (storage->data_ptr().get_context() != nullptr || storage->data_ptr().get() != nullptr) {
      found(*storage);
      return true;
    }
  }
  std::vector<at::Tensor> parts;
  try {
    if (impl->key_set().has(c10::DispatchKey::Python)) {
      parts = inner_tensors(tensor);
    } else if (is_sparse(tensor)) {
      parts = sparse_parts(tensor);
    }
  } catch (const std::exception&) {  // a Python error goes with it
    return false;
  }
  bool all = true;
  for (const at::Tensor& part : parts) all &= for_each_storage(part, found);
  return all;
}

void collect_tensors(PyObject* object, std::vector<at::Tensor>& tensors, int depth) {
  if (object == nullptr || depth == 0) return;
  if (THPVariable_Check(object)) return tensors.push_back(THPVariable_Unpack(object));
  if (PyTuple_Check(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
      collect_tensors(PyTuple_GET_ITEM(object, i), tensors, depth - 1);
    }
  } else if (PyList_Check(object)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i) {
      collect_tensors(PyList_GET_ITEM(object, i), tensors, depth - 1);
    }
  } else if (PyDict_Check(object)) {
    Py_ssize_t position = 0;
    PyObject* value = nullptr;
    while (PyDict_Next(object, &position, nullptr, &value) != 0) {
      collect_tensors(value, tensors, depth - 1);
    }
  }
}

}  // namespace peakline::capture
