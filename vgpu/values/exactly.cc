// Runs a remembered op on values that are all known.
#include <ATen/ATen.h>

#include <cstring>

#include "vgpu/values/computation.h"

namespace peakline::vgpu {
namespace {

class ExactRun {
 public:
  explicit ExactRun(const Computation& computation) : computation_(computation) {}

  std::vector<Known> run() {
    for (const Source& source : computation_.sources()) {
      if (!take(source)) return {};
    }
    for (const Operand& operand : computation_.operands()) stand_ins_.push_back(stand_in(operand));
    results_ = computation_.call(stand_ins_);
    if (Engine* engine = current_engine()) ++engine->counters().values;
    std::vector<Known> known;
    for (const Slot& slot : computation_.slots()) known.push_back({stored(slot), {}});
    return known;
  }

 private:
  // The bytes of a storage, its own copy where the op writes to it.
  bool take(const Source& source) {
    c10::Storage bytes;
    if (source.value) bytes = source.value->evaluate().bytes;
    if (source.read && !bytes) return false;
    if (source.slot >= 0) {
      const c10::Storage own = host_storage(source.bytes);
      if (bytes) {
        std::memcpy(own.mutable_data(), bytes.data(), std::min(bytes.nbytes(), own.nbytes()));
      }
      bytes = own;
    }
    buffers_.push_back(bytes);
    return true;
  }

  [[nodiscard]] at::Tensor place(int source, const Layout& layout) const {
    return host_view(buffers_[static_cast<std::size_t>(source)], layout.dtype, layout.sizes,
                     layout.strides, layout.offset);
  }

  [[nodiscard]] at::Tensor stand_in(const Operand& operand) const {
    if (operand.source < 0) return operand.host;
    // The op gives it its sizes.
    if (operand.only_written) return at::empty({0}, at::dtype(operand.layout.dtype));
    at::Tensor view = place(operand.source, operand.layout);
    if (operand.wrapped_number) view.unsafeGetTensorImpl()->set_wrapped_number(true);
    view._set_conj(operand.conjugated);
    view._set_neg(operand.negated);
    return view;
  }

  [[nodiscard]] at::Tensor computed(const Part& part) const {
    if (part.operand >= 0) return stand_ins_[static_cast<std::size_t>(part.operand)];
    const c10::IValue& value = results_[static_cast<std::size_t>(part.result)];
    if (part.item < 0) return value.toTensor();
    return value.toListRef()[static_cast<std::size_t>(part.item)].toTensor();
  }

  // Empty where the host gave other sizes than the GPU would.
  [[nodiscard]] c10::Storage stored(const Slot& slot) const {
    if (slot.source < 0 && slot.parts.size() == 1) {
      const at::Tensor result = computed(slot.parts[0]);
      if (lies_so(result, slot, slot.parts[0].layout)) return result.storage();
    }
    c10::Storage bytes = slot.source < 0 ? host_storage(slot.bytes)
                                         : buffers_[static_cast<std::size_t>(slot.source)];
    for (const Part& part : slot.parts) {
      const at::Tensor result = computed(part);
      if (!result.defined() || result.sizes() != c10::IntArrayRef(part.layout.sizes)) return {};
      if (result.storage().unsafeGetStorageImpl() == bytes.unsafeGetStorageImpl()) continue;
      host_view(bytes, part.layout.dtype, part.layout.sizes, part.layout.strides,
                part.layout.offset)
          .copy_(result);
    }
    return bytes;
  }

  static bool lies_so(const at::Tensor& result, const Slot& slot, const Layout& layout) {
    if (!result.defined() || !result.has_storage()) return false;
    return result.storage().nbytes() == slot.bytes && result.dtype() == layout.dtype &&
           result.storage_offset() == layout.offset &&
           result.sizes() == c10::IntArrayRef(layout.sizes) &&
           result.strides() == c10::IntArrayRef(layout.strides);
  }

  const Computation& computation_;
  std::vector<c10::Storage> buffers_;
  std::vector<at::Tensor> stand_ins_;
  torch::jit::Stack results_;
};

}  // namespace

std::vector<Known> compute_exactly(const Computation& computation) {
  return ExactRun(computation).run();
}

}  // namespace peakline::vgpu
