#include "capture/dropin/storage_sentinel.h"

#include <utility>

namespace peakline::dropin {
namespace {

struct Sentinel {
  c10::DataPtr inner;  // what lay there before, perhaps another sentinel
  std::function<void()> gone;
};

void release(void* context) {
  auto* sentinel = static_cast<Sentinel*>(context);
  sentinel->gone();
  delete sentinel;
}

}  // namespace

void put_sentinel(const c10::Storage& storage, std::function<void()> gone) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  c10::DataPtr inner = impl->set_data_ptr(c10::DataPtr());
  void* data = inner.mutable_get();
  const c10::Device device = inner.device();
  auto* sentinel = new Sentinel{std::move(inner), std::move(gone)};
  impl->set_data_ptr_noswap(c10::DataPtr(data, sentinel, &release, device));
}

}  // namespace peakline::dropin
