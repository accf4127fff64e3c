// The end of a storage that has no memory of its own.
#pragma once

#include <c10/core/Storage.h>

#include <functional>

namespace peakline::dropin {

// Calls `gone` once, when `storage`'s data pointer is released, on whichever thread does it, with
// or without the GIL. Only for meta storages: others' data pointers are inspected by their
// allocators.
void put_sentinel(const c10::Storage& storage, std::function<void()> gone);

}  // namespace peakline::dropin
