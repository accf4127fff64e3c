#include "vgpu/cuda_hooks.h"

#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/RNN.h>
#include <ATen/native/layer_norm.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/Allocator.h>

#include <atomic>
#include <cstring>

#include "vgpu/attention_choice.h"
#include "vgpu/device_guard.h"
#include "vgpu/generator.h"
#include "vgpu/nested/nested_kernels.h"
#include "vgpu/pinned.h"
#include "vgpu/recurrent.h"
#include "vgpu/sparse/flatten_indices.h"
#include "vgpu/storage.h"

namespace peakline::vgpu {
namespace {

std::atomic<bool> g_init_asked{false};

// No data members: its table of functions is lent to torch's own hooks object.
struct VirtualHooks final : at::CUDAHooksInterface {
  static int count() {
    const Engine* engine = current_engine();
    return engine == nullptr ? 0 : engine->devices();
  }
  static c10::DeviceIndex narrow(int index) { return static_cast<c10::DeviceIndex>(index); }

  void init() const override { g_init_asked.store(true); }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasCuDNN() const override { return true; }
  bool hasCuSOLVER() const override { return true; }
  bool hasCuBLASLt() const override { return true; }
  bool compiledWithCuDNN() const override { return true; }
  bool supportsDilatedConvolutionWithCuDNN() const override { return true; }
  bool supportsDepthwiseConvolutionWithCuDNN() const override { return true; }
  bool supportsBFloat16ConvolutionWithCuDNNv8() const override { return true; }
  bool supportsBFloat16RNNWithCuDNN() const override { return true; }
  long versionCuDNN() const override { return 91900; }
  long versionRuntimeCuDNN() const override { return 91900; }
  long versionCUDART() const override { return 13000; }
  std::string showConfig() const override {
    return "  - CUDA Runtime 13.0, cuDNN 9.19 (virtual)\n";
  }
  double batchnormMinEpsilonCuDNN() const override { return 1e-5; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return narrow(count()); }
  int getNumGPUs() const override { return count(); }
  c10::DeviceIndex current_device() const override { return narrow(ThisThread::device()); }
  c10::DeviceIndex getCurrentDevice() const override { return narrow(ThisThread::device()); }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    ThisThread::exchange_device(index);
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return narrow(ThisThread::exchange_device(index));
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return narrow(ThisThread::exchange_device(index));
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return make_generator(index < 0 ? ThisThread::device() : index);
  }
  at::Device getDeviceFromPtr(void*) const override {
    return {c10::kCUDA, narrow(ThisThread::device())};
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  at::Allocator* getCUDADeviceAllocator() const override { return &virtual_allocator(); }
  void deviceSynchronize(c10::DeviceIndex index) const override {
    virtual_guard().synchronizeDevice(index);
  }
};

// The first word of an object with virtual functions is where its table of them is.
void* table_of(const void* object) {
  void* table = nullptr;
  std::memcpy(&table, object, sizeof table);
  return table;
}
void set_table(const void* object, void* table) {
  std::memcpy(const_cast<void*>(object), &table, sizeof table);
}

// One of torch's per-device function tables; the impl is a stub's only member.
class Stub {
 public:
  template <class DispatchStub>
  explicit Stub(DispatchStub& stub)
      : impl_(reinterpret_cast<at::native::DispatchStubImpl*>(&stub)) {}
  template <class Function>
  void replace(Function function) {
    before_ = impl_->cuda_dispatch_ptr;
    impl_->cuda_dispatch_ptr = reinterpret_cast<void*>(function);
  }
  void restore() { impl_->cuda_dispatch_ptr = before_; }

 private:
  at::native::DispatchStubImpl* impl_;
  void* before_ = nullptr;
};

struct Before {
  const c10::impl::DeviceGuardImplInterface* guard = nullptr;
  void* hooks = nullptr;
  c10::Allocator* allocator = nullptr;
  Stub sdpa{at::native::_fused_sdp_choice_stub};
  Stub lstm{at::native::lstm_cudnn_stub};
  Stub gru{at::native::gru_cudnn_stub};
  Stub rnn_tanh{at::native::rnn_tanh_cudnn_stub};
  Stub rnn_relu{at::native::rnn_relu_cudnn_stub};
  Stub layer_norm{at::native::LayerNormKernel};
  Stub flatten_indices{flatten_indices_stub()};
  Stub packed_lstm{at::native::lstm_packed_cudnn_stub};
  Stub packed_gru{at::native::gru_packed_cudnn_stub};
  Stub packed_rnn_tanh{at::native::rnn_tanh_packed_cudnn_stub};
  Stub packed_rnn_relu{at::native::rnn_relu_packed_cudnn_stub};
};

Before& before() {
  static auto* const kBefore = new Before;
  return *kBefore;
}

std::atomic<const c10::impl::DeviceGuardImplInterface*>& guard_slot() {
  return c10::impl::device_guard_impl_registry[static_cast<std::size_t>(c10::kCUDA)];
}

c10::Allocator* allocator_before() {
  try {
    return c10::GetAllocator(c10::kCUDA);
  } catch (const c10::Error&) {
    return nullptr;  // a build without CUDA
  }
}

}  // namespace

void install_hooks() {
  static const auto* const kHooks = new VirtualHooks;
  Before& saved = before();
  const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
  saved.hooks = table_of(&hooks);
  set_table(&hooks, table_of(kHooks));
  saved.guard = guard_slot().exchange(&virtual_guard());
  saved.allocator = allocator_before();
  c10::SetAllocator(c10::kCUDA, &virtual_allocator());
  saved.sdpa.replace(&choose_attention);
  saved.lstm.replace(&run_lstm);
  saved.gru.replace(&run_gru);
  saved.rnn_tanh.replace(&run_rnn_tanh);
  saved.rnn_relu.replace(&run_rnn_relu);
  saved.layer_norm.replace(&normalize_rows);
  saved.flatten_indices.replace(&flatten_indices);
  saved.packed_lstm.replace(&run_packed_lstm);
  saved.packed_gru.replace(packed_gru());
  saved.packed_rnn_tanh.replace(packed_rnn_tanh());
  saved.packed_rnn_relu.replace(packed_rnn_relu());
}

void remove_hooks() {
  Before& saved = before();
  const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
  set_table(&hooks, saved.hooks);
  guard_slot().store(saved.guard);
  c10::SetAllocator(c10::kCUDA, saved.allocator);
  saved.sdpa.restore();
  saved.lstm.restore();
  saved.gru.restore();
  saved.rnn_tanh.restore();
  saved.rnn_relu.restore();
  saved.layer_norm.restore();
  saved.flatten_indices.restore();
  saved.packed_lstm.restore();
  saved.packed_gru.restore();
  saved.packed_rnn_tanh.restore();
  saved.packed_rnn_relu.restore();
  // torch starts CUDA once, and has asked the virtual one: a real one must not miss it.
  if (g_init_asked.exchange(false) && hooks.hasCUDA()) hooks.init();
}

}  // namespace peakline::vgpu
