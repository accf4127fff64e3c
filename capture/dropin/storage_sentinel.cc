#include "capture/dropin/storage_sentinel.h"

#include <c10/core/Allocator.h>

#include <mutex>
#include <utility>
#include <vector>

namespace peakline::dropin {
namespace {

struct Watcher {
  std::weak_ptr<void> owner;
  std::function<void()> gone;
};

struct Sentinel {
  c10::DataPtr inner;  // what lay there before
  std::vector<Watcher> watchers;
};

void release(void* context) {
  std::unique_ptr<Sentinel> sentinel(static_cast<Sentinel*>(context));
  for (const Watcher& watcher : sentinel->watchers) {
    if (auto owner = watcher.owner.lock()) watcher.gone();
  }
}

// One for all: sentinels are put rarely, and never while one is being released.
std::mutex g_mutex;

Sentinel* sentinel_of(const c10::DataPtr& data) {
  return data.get_deleter() == &release ? static_cast<Sentinel*>(data.get_context()) : nullptr;
}

}  // namespace

bool can_have_sentinel(const c10::Storage& storage) {
  if (storage.device().is_meta()) return true;
  const c10::DataPtr& data = storage.unsafeGetStorageImpl()->data_ptr();
  if (sentinel_of(data) != nullptr) return true;
  return storage.device().is_cpu() && data.get() != nullptr &&
         data.get_deleter() == c10::GetAllocator(c10::DeviceType::CPU)->raw_deleter();
}

void put_sentinel(const c10::Storage& storage, std::weak_ptr<void> owner,
                  std::function<void()> gone) {
  std::lock_guard<std::mutex> lock(g_mutex);
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  Sentinel* sentinel = sentinel_of(impl->data_ptr());
  if (sentinel == nullptr) {
    c10::DataPtr inner = impl->set_data_ptr(c10::DataPtr());
    void* data = inner.mutable_get();
    const c10::Device device = inner.device();
    sentinel = new Sentinel{std::move(inner), {}};
    impl->set_data_ptr_noswap(c10::DataPtr(data, sentinel, &release, device));
  }
  // One tracker after another over the same model must not leave a growing list behind.
  std::erase_if(sentinel->watchers, [](const Watcher& old) { return old.owner.expired(); });
  sentinel->watchers.push_back({std::move(owner), std::move(gone)});
}

}  // namespace peakline::dropin
