#include "capture/host_allocator.h"

#include <c10/core/CPUAllocator.h>

#include "capture/alloc_gate.h"
#include "capture/listeners.h"
#include "capture/recorder.h"

namespace peakline::capture {
namespace {

c10::Allocator* g_inner = nullptr;  // torch's own; set once, before ours is first used
c10::DeleterFnPtr g_inner_delete = nullptr;
int g_observers = 0;  // under the GIL

void remember_inner() {
  if (g_inner != nullptr) return;
  g_inner = c10::GetAllocator(c10::DeviceType::CPU);
  g_inner_delete = g_inner->raw_deleter();
}

void note_alloc(const void* data, std::size_t bytes) noexcept {
  const auto address = reinterpret_cast<std::uint64_t>(data);
  if (Recorder* recorder = current_recorder()) {
    push_inside_ops(*recorder, {.address = address,
                                .size = bytes,
                                .extra = bytes,
                                .kind = RawKind::kAlloc,
                                .device = recorder->host().raw()});
  }
  if (somebody_listens()) tell_host_alloc({.address = address, .bytes = bytes});
}

// Noted before it happens: afterwards another thread may already have got the address again.
void delete_noted(void* data) {
  const auto address = reinterpret_cast<std::uint64_t>(data);
  if (data != nullptr) {
    if (Recorder* recorder = current_recorder()) recorder->free(recorder->host(), address, 0);
    if (somebody_listens()) tell_free({.address = address});
  }
  g_inner_delete(data);
}

class NotingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr data = g_inner->allocate(bytes);
    if (data.get() != nullptr && data.compare_exchange_deleter(g_inner_delete, &delete_noted)) {
      note_alloc(data.get(), bytes);
    }
    return data;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &delete_noted; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    g_inner->copy_data(to, from, bytes);
  }
};

NotingAllocator& noting_allocator() {
  static NotingAllocator* const kAllocator = new NotingAllocator;  // outlives every storage
  return *kAllocator;
}

}  // namespace

Result<std::unique_ptr<HostAllocatorObserver>> HostAllocatorObserver::install() {
  remember_inner();
  const c10::Allocator* in_place = c10::GetAllocator(c10::DeviceType::CPU);
  const bool usable =
      (in_place == g_inner || in_place == &noting_allocator()) && g_inner_delete != nullptr;
  if (usable) c10::SetAllocator(c10::DeviceType::CPU, &noting_allocator());
  if (!usable || c10::GetAllocator(c10::DeviceType::CPU) != &noting_allocator()) {
    return unsupported(
        "peakline cannot see host memory because another library has replaced torch's CPU "
        "allocator; start tracking without that library");
  }
  ++g_observers;
  return std::unique_ptr<HostAllocatorObserver>(new HostAllocatorObserver);
}

HostAllocatorObserver::~HostAllocatorObserver() {
  if (--g_observers > 0) return;
  if (c10::GetAllocator(c10::DeviceType::CPU) == &noting_allocator()) {
    c10::SetAllocator(c10::DeviceType::CPU, g_inner);
  }
}

bool HostAllocatorObserver::watch_free(c10::StorageImpl& storage) {
  if (!storage.device().is_cpu()) return false;
  remember_inner();
  if (g_inner_delete == nullptr) return false;
  if (storage.allocator() == g_inner) storage.set_allocator(&noting_allocator());
  c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  if (data.get() == nullptr) return false;
  return data.get_deleter() == &delete_noted ||
         data.compare_exchange_deleter(g_inner_delete, &delete_noted);
}

}  // namespace peakline::capture
