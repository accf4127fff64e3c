#include "vgpu/device_guard.h"

#include <c10/util/Exception.h>

#include "vgpu/storage.h"

namespace peakline::vgpu {
namespace {

c10::DeviceIndex narrow(int index) { return static_cast<c10::DeviceIndex>(index); }

int checked(c10::DeviceIndex index) {
  Engine* engine = current_engine();
  if (index < 0) return ThisThread::device();
  TORCH_CHECK(engine != nullptr && index < engine->devices(), "CUDA error: invalid device ordinal ",
              static_cast<int>(index));
  return index;
}

// When it happens, by the engine's clock.
struct Event {
  double us = 0;
};

class VirtualGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {c10::kCUDA, narrow(ThisThread::exchange_device(checked(device.index())))};
  }
  c10::Device getDevice() const override { return {c10::kCUDA, narrow(ThisThread::device())}; }
  void setDevice(c10::Device device) const override {
    ThisThread::exchange_device(checked(device.index()));
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < kMaxDevices) {
      ThisThread::exchange_device(device.index());
    }
  }

  c10::Stream getStream(c10::Device device) const override {
    const int index = checked(device.index());
    return stream(ThisThread::stream(index), index);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream(0, checked(device.index()));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high) const override {
    return getNewStream(device, high ? -1 : 0);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    const int index = checked(device.index());
    return stream(engine_or_throw("a new stream").new_stream(index, priority), index);
  }
  c10::Stream exchangeStream(c10::Stream to) const override {
    const int index = checked(to.device_index());
    return stream(ThisThread::exchange_stream(index, to.id()), index);
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& of) const override {
    if (Engine* engine = current_engine()) {
      const int device = checked(of.device_index());
      engine->clock().synchronize_stream(device, of.id());
      engine->memory().stream_done(device, allocator_stream(of.id()));
    }
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    Engine* engine = current_engine();
    if (engine == nullptr) return;
    engine->clock().synchronize_device(checked(index));
    engine->memory().synchronize(checked(index));
  }

  void record(void** event, const c10::Stream& on, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    Engine* engine = current_engine();
    if (engine == nullptr) return;
    static_cast<Event*>(*event)->us = engine->clock().record(checked(on.device_index()), on.id());
  }
  void block(void* event, const c10::Stream& of) const override {
    Engine* engine = current_engine();
    if (engine == nullptr || event == nullptr) return;
    engine->clock().wait(checked(of.device_index()), of.id(), static_cast<Event*>(event)->us);
  }
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void* event) const override {
    Engine* engine = current_engine();
    if (engine == nullptr || event == nullptr) return;
    engine->clock().synchronize(static_cast<Event*>(event)->us);
  }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    if (from == nullptr || to == nullptr) return 0;
    return (static_cast<Event*>(to)->us - static_cast<Event*>(from)->us) / 1e3;
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& on) const override {
    Engine* engine = current_engine();
    if (engine == nullptr || data.get() == nullptr) return;
    engine->memory().record_stream(data.device().index(),
                                   reinterpret_cast<std::uint64_t>(data.get()),
                                   allocator_stream(on.id()));
  }

  c10::DeviceIndex deviceCount() const noexcept override {
    const Engine* engine = current_engine();
    return engine == nullptr ? narrow(0) : narrow(engine->devices());
  }

 private:
  static c10::Stream stream(std::int64_t id, int device) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, narrow(device)), id);
  }
};

}  // namespace

const c10::impl::DeviceGuardImplInterface& virtual_guard() {
  static const auto* const kGuard = new VirtualGuard;
  return *kGuard;
}

}  // namespace peakline::vgpu
