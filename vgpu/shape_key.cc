#include "vgpu/shape_key.h"

#include <bit>
#include <cstring>

#include "vgpu/engine.h"
#include "vgpu/op_call.h"

namespace peakline::vgpu {
namespace {

enum Tag : std::uint64_t {
  kNone = 1,
  kInt,
  kDouble,
  kBool,
  kDevice,
  kString,
  kList,
  kGenerator,
  kUndefinedTensor,
  kTensor,
  kComplex,
};

class KeyWriter {
 public:
  KeyWriter(std::vector<std::uint64_t>& words, const OpInfo& info) : words_(words), info_(info) {}

  bool value(const c10::IValue& value, bool written) {
    if (value.isTensor()) return tensor(value.toTensor(), written), true;
    if (value.isNone()) return put(kNone), true;
    if (value.isInt()) return put(kInt), put(static_cast<std::uint64_t>(value.toInt())), true;
    if (value.isBool()) return put(kBool | std::uint64_t{value.toBool()} << 8), true;
    if (value.isDouble())
      return put(kDouble), put(std::bit_cast<std::uint64_t>(value.toDouble())), true;
    if (value.isList()) return list(value, written);
    if (value.isDevice()) return device(value.toDevice()), true;
    if (value.isString()) return text(value.toStringRef()), true;
    if (value.isGenerator()) return put(kGenerator), true;
    if (value.isComplexDouble()) {
      const auto number = value.toComplexDouble();
      return put(kComplex), put(std::bit_cast<std::uint64_t>(number.real())),
             put(std::bit_cast<std::uint64_t>(number.imag())), true;
    }
    return false;
  }

 private:
  void put(std::uint64_t word) { words_.push_back(word); }

  void device(c10::Device device) {
    put(kDevice | static_cast<std::uint64_t>(device.type()) << 8 |
        static_cast<std::uint64_t>(static_cast<std::uint8_t>(device.index())) << 16);
  }

  void text(const std::string& text) {
    put(kString | text.size() << 8);
    for (std::size_t i = 0; i < text.size(); i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + i, std::min<std::size_t>(8, text.size() - i));
      put(word);
    }
  }

  bool list(const c10::IValue& value, bool written) {
    const c10::ArrayRef<c10::IValue> items = value.toListRef();
    put(kList | items.size() << 8);
    for (const c10::IValue& item : items) {
      if (!this->value(item, written)) return false;
    }
    return true;
  }

  // Where a tensor begins in its storage matters only for views and for what may be resized.
  void tensor(const at::Tensor& tensor, bool written) {
    if (!tensor.defined()) return put(kUndefinedTensor);
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    const auto dim = static_cast<std::uint64_t>(impl.dim());
    const bool contiguous = impl.is_contiguous();
    const bool exact = info_.view || (written && info_.only_written != 0);
    put(kTensor | static_cast<std::uint64_t>(impl.dtype().toScalarType()) << 8 | dim << 16 |
        static_cast<std::uint64_t>(static_cast<std::uint8_t>(impl.device().index())) << 24 |
        static_cast<std::uint64_t>(impl.device_type()) << 32 | std::uint64_t{contiguous} << 40 |
        std::uint64_t{impl.is_wrapped_number()} << 41);
    for (const std::int64_t size : impl.sizes()) put(static_cast<std::uint64_t>(size));
    // With four and more dimensions sizes of one hide which memory format is meant.
    if (!contiguous || dim >= 4) {
      for (const std::int64_t stride : impl.strides()) put(static_cast<std::uint64_t>(stride));
    }
    if (!exact) return;
    put(static_cast<std::uint64_t>(impl.storage_offset()));
    put(impl.has_storage() ? impl.unsafe_storage().nbytes() : 0);
  }

  std::vector<std::uint64_t>& words_;
  const OpInfo& info_;
};

// What chooses kernels beside the arguments: for ops that have a rule, since nobody else asks.
std::uint64_t settings(const OpInfo& info) {
  if (!info.has_kernel_rule) return 0;
  const Engine* engine = current_engine();
  const std::uint64_t changes = engine == nullptr ? 0 : engine->settings_changes();
  return kernel_switches().word() | changes << 16;
}

}  // namespace

bool make_key(const Call& call, std::vector<std::uint64_t>& words) {
  words.clear();
  words.push_back(reinterpret_cast<std::uint64_t>(&call.info));
  words.push_back(static_cast<std::uint64_t>(call.device));
  words.push_back(settings(call.info));
  KeyWriter writer(words, call.info);
  for (std::size_t i = 0; i < call.args.size(); ++i) {
    if (!writer.value(call.args[i], (call.info.written >> i & 1) != 0)) return false;
  }
  return true;
}

}  // namespace peakline::vgpu
