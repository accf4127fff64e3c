#include "vgpu/op_call.h"

#include <ATen/Context.h>

#include "vgpu/convolution_call.h"

namespace peakline::vgpu {
namespace {

bool holds_tensors(c10::ArrayRef<c10::IValue> items) {
  for (const c10::IValue& item : items) {
    if (item.isTensor()) return true;
    if (!item.isNone()) return false;
  }
  return false;
}

Argument list_argument(c10::ArrayRef<c10::IValue> items) {
  if (holds_tensors(items)) {
    std::vector<TensorMeta> list;
    for (const c10::IValue& item : items) {
      list.push_back(meta_of(item.isTensor() ? item.toTensor() : at::Tensor()));
    }
    return list;
  }
  if (items.empty() || items[0].isInt()) {
    std::vector<std::int64_t> list;
    for (const c10::IValue& item : items) list.push_back(item.isInt() ? item.toInt() : 0);
    return list;
  }
  if (items[0].isBool()) {
    std::vector<bool> list;
    for (const c10::IValue& item : items) list.push_back(item.toBool());
    return list;
  }
  if (items[0].isDouble()) {
    std::vector<double> list;
    for (const c10::IValue& item : items) list.push_back(item.toDouble());
    return list;
  }
  return std::monostate{};
}

Argument argument(const c10::IValue& value) {
  if (value.isTensor()) return meta_of(value.toTensor());
  if (value.isInt()) return value.toInt();
  if (value.isBool()) return value.toBool();
  if (value.isDouble()) return value.toDouble();
  if (value.isString()) return value.toStringRef();
  if (value.isList()) return list_argument(value.toListRef());
  return std::monostate{};
}

void add_output(OpCall& call, const Output& output) {
  if (output.kind == Output::Kind::kValue) return;
  if (output.kind == Output::Kind::kList) {
    for (const Output& item : output.items) add_output(call, item);
    return;
  }
  OpCall::Output made;
  made.fresh = output.kind == Output::Kind::kFresh;
  made.meta = meta_of(output.layout);
  made.meta.defined = output.kind != Output::Kind::kUndefined;
  call.outputs.push_back(std::move(made));
}

// Who computes depthwise convolutions, in versions of torch that let one choose.
template <class Context>
std::uint8_t depthwise_choice(const Context& context) {
  if constexpr (requires { context.cudnnDepthwiseKernel(); }) {
    return static_cast<std::uint8_t>(context.cudnnDepthwiseKernel());
  } else {
    return 0;
  }
}

}  // namespace

TensorMeta meta_of(const at::Tensor& tensor) {
  TensorMeta meta;
  meta.defined = tensor.defined();
  if (!tensor.defined()) return meta;
  meta.sizes = tensor.sizes().vec();
  meta.strides = tensor.strides().vec();
  meta.storage_offset = tensor.storage_offset();
  meta.dtype = static_cast<DType>(tensor.scalar_type());
  meta.on_gpu = tensor.is_cuda();
  meta.requires_grad = tensor.requires_grad();
  return meta;
}

TensorMeta meta_of(const Layout& layout) {
  TensorMeta meta;
  meta.sizes.assign(layout.sizes.begin(), layout.sizes.end());
  meta.strides.assign(layout.strides.begin(), layout.strides.end());
  meta.storage_offset = layout.offset;
  if (layout.dtype != caffe2::TypeMeta()) {
    meta.dtype = static_cast<DType>(layout.dtype.toScalarType());
  }
  return meta;
}

KernelSwitches kernel_switches() {
  at::Context& context = at::globalContext();
  KernelSwitches switches;
  switches.cudnn_enabled = context.userEnabledCuDNN();
  switches.cudnn_benchmark = context.benchmarkCuDNN();
  switches.cudnn_deterministic = context.deterministicCuDNN();
  switches.cudnn_allow_tf32 = context.allowTF32CuDNN(at::Float32Op::CONV);
  switches.deterministic_algorithms = context.deterministicAlgorithms();
  switches.prefers_cublaslt = context.blasPreferredBackend() == at::BlasBackend::Cublaslt;
  switches.matmul_allow_tf32 =
      context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
      at::Float32Precision::TF32;
  switches.cudnn_depthwise = depthwise_choice(context);
  return switches;
}

SdpSwitches sdp_switches() {
  at::Context& context = at::globalContext();
  SdpSwitches switches;
  switches.flash = context.userEnabledFlashSDP();
  switches.efficient = context.userEnabledMemEfficientSDP();
  switches.math = context.userEnabledMathSDP();
  switches.cudnn = context.userEnabledCuDNNSDP();
  switches.deterministic_algorithms = context.deterministicAlgorithms();
  const auto order = context.sDPPriorityOrder();
  // Until somebody sets it, this is CUDA's business.
  static const auto kFirst = order;
  if (order != kFirst) {
    for (const at::SDPBackend backend : order) {
      switches.priority.push_back(static_cast<int>(backend));
    }
  }
  return switches;
}

OpCall op_call(const Call& call, const ShapeEntry& entry, const KernelSwitches& switches) {
  OpCall made;
  made.name = call.info.name.text;
  made.overload = call.op.schema().overload_name();
  for (const c10::IValue& value : call.args) made.arguments.push_back(argument(value));
  for (const Output& output : entry.outputs) add_output(made, output);
  made.convolution = convolution_of(call, switches);
  made.elementwise = call.info.elementwise;
  made.view = call.info.view && call.info.written == 0 && entry.fresh.empty();
  return made;
}

}  // namespace peakline::vgpu
