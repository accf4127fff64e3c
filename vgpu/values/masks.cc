#include "vgpu/values/masks.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "vgpu/values.h"
#include "vgpu/values/host_run.h"

namespace peakline::vgpu {
namespace {

// At most as many are nonzero as `parts` have together, and `added` more.
struct Few {
  std::vector<ValuePtr> parts;
  std::int64_t added = 0;
};

// Notes by the value that they are about, while it lives. Thread-safe.
template <class Note>
class Book {
 public:
  void add(const ValuePtr& value, Note note) {
    const std::lock_guard guard(mutex_);
    std::erase_if(notes_, [](const auto& entry) { return entry.second.first.expired(); });
    if (notes_.size() < kMost) notes_[value.get()] = {value, std::move(note)};
  }

  std::optional<Note> find(const ValuePtr& value) {
    const std::lock_guard guard(mutex_);
    const auto found = notes_.find(value.get());
    if (found == notes_.end() || found->second.first.expired()) return std::nullopt;
    return found->second.second;
  }

 private:
  static constexpr std::size_t kMost = 256;
  std::mutex mutex_;
  std::unordered_map<const Value*, std::pair<std::weak_ptr<Value>, Note>> notes_;
};

Book<Few>& few_nonzero() {
  static auto* const kBook = new Book<Few>;
  return *kBook;
}

Book<bool>& counts() {
  static auto* const kBook = new Book<bool>;
  return *kBook;
}

bool is_mask(const at::Tensor& tensor) {
  return at::isIntegralType(tensor.scalar_type(), true) && covers_storage(tensor);
}

// As many elements as `self[indices] = …` writes; nothing where a mask says which.
std::optional<std::int64_t> indexed(const at::Tensor& self, c10::ArrayRef<c10::IValue> indices) {
  std::vector<std::int64_t> sizes;
  std::int64_t rest = 1;
  for (std::int64_t i = 0; i < self.dim(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (at >= indices.size() || !indices[at].isTensor() || !indices[at].toTensor().defined()) {
      rest *= self.size(i);
      continue;
    }
    const at::Tensor& index = indices[at].toTensor();
    if (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte) return std::nullopt;
    sizes = at::infer_size(sizes, index.sizes());
  }
  return c10::multiply_integers(sizes) * rest;
}

// How many places of its first argument an op sets.
std::optional<std::int64_t> places(const Call& call) {
  const std::string& name = call.info.name.text;
  const at::Tensor& self = call.args[0].toTensor();
  if (name == "aten::_index_put_impl_") return indexed(self, call.args[1].toListRef());
  if (name == "aten::scatter_") return call.args[2].toTensor().numel();
  if (name == "aten::index_fill_" && self.dim() > 0) {
    return call.args[2].toTensor().numel() * self.numel() /
           std::max<std::int64_t>(self.size(call.args[1].toInt()), 1);
  }
  return std::nullopt;
}

bool joins(const std::string& name) {
  return name == "aten::bitwise_or" || name == "aten::logical_or" || name == "aten::cat";
}

// `value` and what is known to be added to it, into one.
bool take(Few& few, const ValuePtr& value) {
  const std::optional<Few> before = few_nonzero().find(value);
  if (!before) {
    few.parts.push_back(value);
    return false;
  }
  few.parts.insert(few.parts.end(), before->parts.begin(), before->parts.end());
  few.added += before->added;
  return true;
}

void note_joined(const Call& call, const ValuePtr& result) {
  Few few;
  bool any = false;
  for (const at::Tensor* tensor : call.tensors) {
    if (!tensor->defined() || record_of(*tensor) == nullptr) return;
    const ValuePtr& value = record_of(*tensor)->value;
    if (!value || !is_mask(*tensor)) return;
    any |= take(few, value);
  }
  if (any) few_nonzero().add(result, std::move(few));
}

void note_set(const Call& call, const Computation& computation, const ValuePtr& result) {
  const std::optional<std::int64_t> set = places(call);
  const int source = computation.operands().empty() ? -1 : computation.operands()[0].source;
  if (!set || source < 0) return;
  const ValuePtr& before = computation.sources()[static_cast<std::size_t>(source)].value;
  if (!before) return;
  Few few;
  take(few, before);
  few.added += *set;
  few_nonzero().add(result, std::move(few));
}

// Of a value without such a history.
std::int64_t may_be_nonzero(Value& value) {
  const Known known = value.evaluate();
  const c10::ScalarType dtype = value.dtype();
  if (known.bytes) {
    const auto size = static_cast<std::int64_t>(known.bytes.nbytes() / c10::elementSize(dtype));
    return host_view(known.bytes, c10::scalarTypeToTypeMeta(dtype), {size}, {1}, 0)
        .count_nonzero()
        .item<std::int64_t>();
  }
  if (!known.bounds || known.bounds->is_uniform()) {
    const bool none = known.bounds && known.bounds->is_within({0, 0});
    return none ? 0 : std::numeric_limits<std::int32_t>::max();
  }
  const at::Tensor never = known.bounds->low.eq(0).logical_and(known.bounds->high.eq(0));
  return never.logical_not().sum().item<std::int64_t>();
}

}  // namespace

void note_mask(const Call& call, const Computation& computation, const ValuePtr& result) {
  if (call.tensors.empty() || !call.tensors[0]->defined()) return;
  if (computation.rule() != nullptr && computation.rule()->kind == ValueRule::Kind::kReduceSum &&
      call.tensors[0]->scalar_type() == at::kBool) {
    return counts().add(result, true);
  }
  if (!is_mask(*call.tensors[0])) return;
  if (joins(call.info.name.text)) return note_joined(call, result);
  if (call.args[0].isTensor()) note_set(call, computation, result);
}

bool is_count(const ValuePtr& value) { return value && counts().find(value).has_value(); }

std::optional<std::int64_t> most_nonzero(const at::Tensor& tensor) {
  const StorageRecord* record = record_of(tensor);
  if (record == nullptr || !record->value || !is_mask(tensor)) return std::nullopt;
  const std::optional<Few> few = few_nonzero().find(record->value);
  if (!few) return std::nullopt;
  const HostRun host;
  std::int64_t most = few->added;
  for (const ValuePtr& part : few->parts) most += may_be_nonzero(*part);
  return most;
}

}  // namespace peakline::vgpu
