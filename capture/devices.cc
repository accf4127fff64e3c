#include "capture/devices.h"

#include <dlfcn.h>

#include <string>

namespace peakline::capture {

DeviceInfo describe_cuda(int index) {
  DeviceInfo info{"cuda:" + std::to_string(index), "", Bytes{}};
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  if (driver == nullptr) return info;
  using GetName = int (*)(char*, int, int);
  using TotalMem = int (*)(std::size_t*, int);
  const auto get_name = reinterpret_cast<GetName>(::dlsym(driver, "cuDeviceGetName"));
  const auto total_mem = reinterpret_cast<TotalMem>(::dlsym(driver, "cuDeviceTotalMem_v2"));
  char name[256] = {};
  std::size_t total = 0;
  if (get_name != nullptr && get_name(name, sizeof name - 1, index) == 0) info.model = name;
  if (total_mem != nullptr && total_mem(&total, index) == 0) {
    info.total = Bytes(static_cast<std::int64_t>(total));
  }
  ::dlclose(driver);
  return info;
}

DeviceId Devices::define_cuda(int index) noexcept {
  DeviceId id;
  undisturbed(recorder_, [&] {
    id = recorder_.words().device(describe_cuda(index));
    cuda_[slot(index)].store(static_cast<std::uint16_t>(id.raw() + 1), std::memory_order_relaxed);
  });
  return id;
}

DeviceId Devices::of(c10::Device device) {
  if (device.is_cpu()) return recorder_.host();
  const int index = device.has_index() ? device.index() : 0;
  if (device.is_cuda()) return cuda(index);
  return recorder_.words().device(
      {c10::DeviceTypeName(device.type(), true) + ":" + std::to_string(index), "", Bytes{}});
}

}  // namespace peakline::capture
