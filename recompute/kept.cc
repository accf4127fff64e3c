#include "recompute/kept.h"

#include <c10/util/Exception.h>

namespace peakline::recompute {
namespace {

bool shares_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.has_storage() && b.has_storage() &&
         a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

}  // namespace

// A view gets its base's counter later, above this.
KeptTensor::KeptTensor(const at::Tensor& tensor, const at::Tensor& base)
    : counter_(
          (shares_memory(tensor, base) ? base : tensor).unsafeGetTensorImpl()->version_counter()) {
  if (counter_.enabled()) version_ = counter_.current_version();
  tensor_ = at::Tensor(
      tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(counter_), true));
}

const at::Tensor& KeptTensor::unchanged(const std::string& op) const {
  TORCH_CHECK(!counter_.enabled() || counter_.current_version() == version_,
              "a result that the plan keeps was changed in place after it was made: ", op);
  return tensor_;
}

Kept::Kept(const torch::jit::Stack& stack, int count, const at::Tensor& base) {
  for (auto value = stack.end() - count; value != stack.end(); ++value) {
    if (value->isTensor() && value->toTensor().defined()) {
      values_.emplace_back(KeptTensor(value->toTensor(), base));
    } else if (value->isTensorList()) {
      std::vector<KeptTensor> list;
      for (const at::Tensor& tensor : value->toTensorVector()) list.emplace_back(tensor, base);
      values_.emplace_back(std::move(list));
    } else {
      values_.emplace_back(*value);
    }
  }
}

std::vector<c10::IValue> Kept::values(const std::string& op) const {
  std::vector<c10::IValue> found;
  for (const Value& value : values_) {
    if (const auto* tensor = std::get_if<KeptTensor>(&value)) {
      found.emplace_back(tensor->unchanged(op));
    } else if (const auto* list = std::get_if<std::vector<KeptTensor>>(&value)) {
      std::vector<at::Tensor> tensors;
      for (const KeptTensor& one : *list) tensors.push_back(one.unchanged(op));
      found.emplace_back(std::move(tensors));
    } else {
      found.push_back(std::get<c10::IValue>(value));
    }
  }
  return found;
}

}  // namespace peakline::recompute
