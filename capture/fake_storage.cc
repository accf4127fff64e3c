#include "capture/fake_storage.h"

#include <atomic>
#include <memory>
#include <mutex>

#include "capture/alloc_gate.h"
#include "capture/fork_guard.h"
#include "capture/listeners.h"

namespace peakline::capture {
namespace {

// Above every address that a process can have.
std::atomic<std::uint64_t> g_next_address{std::uint64_t{1} << 60};

struct Sentinel {
  FakeBlock block;
  c10::DataPtr inner;  // what lay there before
};

void end_of_storage(void* context) {
  const std::unique_ptr<Sentinel> sentinel(static_cast<Sentinel*>(context));
  const FakeBlock& block = sentinel->block;
  Recorder* recorder = current_recorder();
  if (recorder != nullptr && recorder->serial() == block.recorder) {
    recorder->free(block.device, block.address, block.bytes);
  }
  if (somebody_listens()) tell_free({.address = block.address, .device = c10::kMeta});
}

Sentinel* sentinel_of(const c10::StorageImpl& storage) noexcept {
  const c10::DataPtr& data = storage.data_ptr();
  if (data.get_deleter() != &end_of_storage) return nullptr;
  return static_cast<Sentinel*>(data.get_context());
}

// One for all: a sentinel is put once in a storage's life.
std::mutex& put_mutex() {
  static auto* const kMutex = new ForkSafe<std::mutex>(ForkOrder::kLast);
  return *kMutex;
}

Sentinel& sentinel_in(c10::StorageImpl& storage) {
  const std::lock_guard guard(put_mutex());
  if (Sentinel* there = sentinel_of(storage)) return *there;
  auto sentinel = std::make_unique<Sentinel>();
  sentinel->block.address = g_next_address.fetch_add(512);
  sentinel->inner = storage.set_data_ptr(c10::DataPtr());
  void* data = sentinel->inner.get();
  const c10::Device device = sentinel->inner.device();
  Sentinel& put = *sentinel;
  storage.set_data_ptr_noswap(c10::DataPtr(data, sentinel.release(), &end_of_storage, device));
  return put;
}

}  // namespace

std::uint64_t fake_address(c10::StorageImpl& storage) { return sentinel_in(storage).block.address; }

const FakeBlock* fake_block(const c10::StorageImpl& storage) noexcept {
  const Sentinel* sentinel = sentinel_of(storage);
  return sentinel == nullptr ? nullptr : &sentinel->block;
}

void note_fake_tensor(Recorder& recorder, const at::Tensor& tensor, DeviceId device,
                      std::uint64_t round_to) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!impl->has_storage() || !impl->unsafe_storage()) return;
  c10::StorageImpl& storage = *impl->unsafe_storage().unsafeGetStorageImpl();
  const auto size = storage.sym_nbytes().maybe_as_int();
  // A real tensor's memory is seen by its allocator; a size that is a symbol has no bytes yet.
  if (!storage.device().is_meta() || !size.has_value()) return;
  const auto bytes = (static_cast<std::uint64_t>(*size) + round_to - 1) / round_to * round_to;
  if (bytes == 0) return;

  FakeBlock& block = sentinel_in(storage).block;
  if (block.recorder == recorder.serial()) {
    if (block.bytes == bytes) return;
    block.bytes = bytes;
    recorder.push({.address = block.address,
                   .size = bytes,
                   .kind = RawKind::kResize,
                   .device = block.device.raw()});
    return;
  }
  block = {recorder.serial(), block.address, bytes, device};
  push_inside_ops(recorder, {.address = block.address,
                             .size = bytes,
                             .extra = static_cast<std::uint64_t>(*size),
                             .kind = RawKind::kAlloc,
                             .device = device.raw()});
}

}  // namespace peakline::capture
