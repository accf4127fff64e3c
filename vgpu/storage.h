// Storages whose bytes are nowhere: an address of the simulated allocator, and maybe known values.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <memory>

#include "vgpu/engine.h"

namespace peakline::vgpu {

class Value;  // values/value.h

// What hangs on a virtual storage's DataPtr as its context.
struct StorageRecord {
  std::uint64_t engine = 0;  // serial of the session that made it
  std::uint64_t address = 0;
  int device = 0;
  // What is known of its bytes; null: nothing. Every view of the storage shares it.
  std::shared_ptr<Value> value;
};

// The allocator that virtual storages name as theirs. Never destroyed.
c10::Allocator& virtual_allocator();

// A new storage of `bytes` bytes on the current stream of `device`. Throws torch's out-of-memory
// error where the GPU would.
c10::Storage make_storage(Engine& engine, int device, std::uint64_t bytes, OpName* op);
// The same where the size is not sure.
c10::Storage make_storage(Engine& engine, int device, std::uint64_t bytes, OpName* op,
                          Certainty certainty);

// A storage over memory that is allocated already, at `address`, and that it does not own.
c10::Storage borrow_storage(int device, std::uint64_t address, std::uint64_t bytes);
// Whether the storage gives its memory back when it ends.
[[nodiscard]] bool owns_memory(const c10::StorageImpl& storage) noexcept;
void set_owns_memory(Engine& engine, c10::StorageImpl& storage, bool owns);

// Null when the storage is not a virtual one.
StorageRecord* record_of(const c10::StorageImpl& storage) noexcept;

// As UntypedStorage.resize_ does on a GPU: new memory, then the old one is given back.
void resize_storage(Engine& engine, c10::StorageImpl& storage, std::uint64_t bytes);

}  // namespace peakline::vgpu
