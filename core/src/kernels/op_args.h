// Reading an OpCall's arguments without trusting their kinds.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <peakline/kernel_memory.h>

namespace peakline::kernels {

class OpArgs {
 public:
  explicit OpArgs(const OpCall& call) : call_(call) {}

  // The tensor at `index`; an undefined one when there is none.
  [[nodiscard]] const TensorMeta& tensor(std::size_t index) const {
    const auto* found = get<TensorMeta>(index);
    return found != nullptr ? *found : none();
  }
  [[nodiscard]] const std::vector<TensorMeta>& tensors(std::size_t index) const {
    static const std::vector<TensorMeta> kEmpty;
    const auto* found = get<std::vector<TensorMeta>>(index);
    return found != nullptr ? *found : kEmpty;
  }
  [[nodiscard]] std::int64_t integer(std::size_t index, std::int64_t otherwise = 0) const {
    if (const auto* found = get<std::int64_t>(index)) return *found;
    if (const auto* flag = get<bool>(index)) return *flag ? 1 : 0;
    return otherwise;
  }
  [[nodiscard]] bool flag(std::size_t index, bool otherwise = false) const {
    if (const auto* found = get<bool>(index)) return *found;
    if (const auto* number = get<std::int64_t>(index)) return *number != 0;
    return otherwise;
  }
  [[nodiscard]] double real(std::size_t index, double otherwise = 0) const {
    if (const auto* found = get<double>(index)) return *found;
    if (const auto* number = get<std::int64_t>(index)) return static_cast<double>(*number);
    return otherwise;
  }
  [[nodiscard]] const std::vector<std::int64_t>& integers(std::size_t index) const {
    static const std::vector<std::int64_t> kEmpty;
    const auto* found = get<std::vector<std::int64_t>>(index);
    return found != nullptr ? *found : kEmpty;
  }
  // Bools of a bool[3] output mask; true where not given.
  [[nodiscard]] bool mask(std::size_t index, std::size_t bit) const {
    const auto* found = get<std::vector<bool>>(index);
    return found == nullptr || bit >= found->size() || (*found)[bit];
  }
  [[nodiscard]] bool given(std::size_t index) const {
    return index < call_.arguments.size() &&
           !std::holds_alternative<std::monostate>(call_.arguments[index]);
  }
  [[nodiscard]] const TensorMeta& out(std::size_t index) const {
    return index < call_.outputs.size() ? call_.outputs[index].meta : none();
  }
  [[nodiscard]] std::size_t outs() const { return call_.outputs.size(); }

 private:
  template <class T>
  [[nodiscard]] const T* get(std::size_t index) const {
    return index < call_.arguments.size() ? std::get_if<T>(&call_.arguments[index]) : nullptr;
  }
  static const TensorMeta& none() {
    static const TensorMeta kNone = [] {
      TensorMeta tensor;
      tensor.defined = false;
      tensor.sizes = {0};
      tensor.strides = {1};
      return tensor;
    }();
    return kNone;
  }

  const OpCall& call_;
};

}  // namespace peakline::kernels
