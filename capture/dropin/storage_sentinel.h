// The end of a storage that has no memory of its own.
#pragma once

#include <c10/core/Storage.h>

#include <functional>
#include <memory>

namespace peakline::dropin {

// Whether put_sentinel may be used: meta storages, and plain memory of the default CPU allocator.
// Other data pointers are inspected by their allocators (record_stream, shared memory).
[[nodiscard]] bool can_have_sentinel(const c10::Storage& storage);

// Calls `gone` once, when `storage`'s data pointer is released, on whichever thread does it, with
// or without the GIL; not if `owner` is gone by then. Hold a reference to the storage meanwhile.
void put_sentinel(const c10::Storage& storage, std::weak_ptr<void> owner,
                  std::function<void()> gone);

}  // namespace peakline::dropin
