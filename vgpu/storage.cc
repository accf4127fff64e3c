#include "vgpu/storage.h"

#include <cstring>

#include "vgpu/host_memory.h"
#include "vgpu/values/value.h"

namespace peakline::vgpu {
namespace {

// A device's addresses are made up; torch carries them as pointers and never follows them.
void* as_pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

void release(void* context) {
  auto* record = static_cast<StorageRecord*>(context);
  Engine* engine = current_engine();
  if (record->device == kHost) {
    give_back_host(as_pointer(record->address));
  } else if (engine != nullptr && engine->serial() == record->engine) {
    engine->memory().free(record->device, record->address);
  }
  delete record;
}

c10::DataPtr host_data(Engine& engine, std::uint64_t bytes, bool pinned) {
  void* data = reserve_host(bytes, pinned);
  auto* record =
      new StorageRecord{engine.serial(), reinterpret_cast<std::uint64_t>(data), kHost, {}};
  return {data, record, &release, c10::Device(c10::kCPU)};
}

c10::DataPtr make_data(Engine& engine, int device, std::uint64_t bytes, OpName* op,
                       Certainty certainty = Certainty::kExact) {
  if (device == kHost) return host_data(engine, bytes, /*pinned=*/false);
  const auto stream = allocator_stream(ThisThread::stream(device));
  const std::optional<Block> block =
      engine.memory().allocate(device, bytes, stream, op, {}, certainty);
  TORCH_CHECK_WITH(OutOfMemoryError, block.has_value(), engine.memory().out_of_memory(device));
  auto* record = new StorageRecord{engine.serial(), block->address, device, {}};
  return {as_pointer(block->address), record, &release,
          c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device))};
}

ValuePtr first_bytes(Value& value, std::uint64_t bytes) {
  const c10::Storage all = value.evaluate().bytes;
  if (!all) return {};
  const c10::Storage less = host_storage(bytes);
  if (bytes > 0) std::memcpy(less.mutable_data(), all.data(), bytes);
  return Value::of_bytes(less);
}

// Storages name it where somebody may ask them for more.
class VirtualHostAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    return host_data(engine_or_throw("an allocation"), bytes, /*pinned=*/false);
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, std::size_t) const override {}
};

c10::Allocator& host_allocator() {
  static auto* const kAllocator = new VirtualHostAllocator;
  return *kAllocator;
}

class VirtualAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    return make_data(engine_or_throw("an allocation"), ThisThread::device(), bytes, nullptr);
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, std::size_t) const override {}
};

}  // namespace

c10::Allocator& virtual_allocator() {
  static auto* const kAllocator = new VirtualAllocator;
  return *kAllocator;
}

c10::Storage make_storage(Engine& engine, int device, std::uint64_t bytes, OpName* op) {
  return make_storage(engine, device, bytes, op, Certainty::kExact);
}

c10::Storage make_storage(Engine& engine, int device, std::uint64_t bytes, OpName* op,
                          Certainty certainty) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<std::int64_t>(bytes)),
      make_data(engine, device, bytes, op, certainty),
      device == kHost ? &host_allocator() : &virtual_allocator(), /*resizable=*/true);
}

c10::Storage make_host_storage(Engine& engine, std::uint64_t bytes, bool pinned) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<std::int64_t>(bytes)),
      host_data(engine, bytes, pinned), &host_allocator(), /*resizable=*/true);
}

// No session has this serial, so nothing is given back in its name.
constexpr std::uint64_t kNobodysEngine = 0;

c10::Storage borrow_storage(int device, std::uint64_t address, std::uint64_t bytes) {
  auto* record = new StorageRecord{kNobodysEngine, address, device, {}};
  c10::DataPtr data(as_pointer(address), record, &release,
                    c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<std::int64_t>(bytes)),
      std::move(data), &virtual_allocator(), /*resizable=*/false);
}

bool owns_memory(const c10::StorageImpl& storage) noexcept {
  const StorageRecord* record = record_of(storage);
  return record != nullptr && record->engine != kNobodysEngine;
}

void set_owns_memory(Engine& engine, c10::StorageImpl& storage, bool owns) {
  StorageRecord* record = record_of(storage);
  if (record != nullptr) record->engine = owns ? engine.serial() : kNobodysEngine;
}

StorageRecord* record_of(const c10::StorageImpl& storage) noexcept {
  const c10::DataPtr& data = storage.data_ptr();
  if (data.get_deleter() != &release) return nullptr;
  return static_cast<StorageRecord*>(data.get_context());
}

void resize_storage(Engine& engine, c10::StorageImpl& storage, std::uint64_t bytes) {
  static OpName op{"UntypedStorage.resize_", 0, {}};
  const StorageRecord* record = record_of(storage);
  TORCH_CHECK(record != nullptr,
              "a storage that is not on the virtual GPU cannot be resized there");
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  if (storage.nbytes() == bytes) return;
  const std::uint64_t kept = std::min<std::uint64_t>(bytes, storage.nbytes());
  const ValuePtr value = record->value;
  c10::DataPtr fresh = make_data(engine, record->device, bytes, &op);
  // What grows is not known, so values stay known only where none are added.
  if (value && value->exact() && bytes == kept) {
    static_cast<StorageRecord*>(fresh.get_context())->value = first_bytes(*value, kept);
  }
  storage.set_data_ptr_noswap(std::move(fresh));
  storage.set_nbytes(bytes);
}

}  // namespace peakline::vgpu
