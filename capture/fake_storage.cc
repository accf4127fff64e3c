#include "capture/fake_storage.h"

#include <atomic>
#include <memory>

#include "capture/op_observer.h"

namespace peakline::capture {
namespace {

// Above every address that a process can have, so it never meets a real block's.
std::atomic<std::uint64_t> g_next_address{std::uint64_t{1} << 60};

struct Sentinel {
  FakeBlock block;
  c10::DataPtr inner;
};

void end_of_block(void* context) {
  const std::unique_ptr<Sentinel> sentinel(static_cast<Sentinel*>(context));
  Recorder* recorder = current_recorder();
  if (recorder == nullptr || recorder->serial() != sentinel->block.recorder) return;
  recorder->free(sentinel->block.device, sentinel->block.address, sentinel->block.bytes);
}

Sentinel* sentinel_of(const c10::StorageImpl& storage) noexcept {
  const c10::DataPtr& data = storage.data_ptr();
  if (data.get_deleter() != &end_of_block) return nullptr;
  return static_cast<Sentinel*>(data.get_context());
}

Sentinel* put_sentinel(c10::StorageImpl& storage) {
  auto sentinel = std::make_unique<Sentinel>();
  sentinel->inner = storage.set_data_ptr(c10::DataPtr());
  void* data = sentinel->inner.get();
  const c10::Device device = sentinel->inner.device();
  Sentinel* raw = sentinel.release();
  storage.set_data_ptr_noswap(c10::DataPtr(data, raw, &end_of_block, device));
  return raw;
}

}  // namespace

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

  Sentinel* sentinel = sentinel_of(storage);
  if (sentinel == nullptr) sentinel = put_sentinel(storage);
  FakeBlock& block = sentinel->block;
  if (block.recorder == recorder.serial()) {
    if (block.bytes == bytes) return;
    block.bytes = bytes;
    recorder.push({.address = block.address,
                   .size = bytes,
                   .kind = RawKind::kResize,
                   .device = block.device.raw()});
    return;
  }
  block = {recorder.serial(), g_next_address.fetch_add(512), bytes, device};
  push_inside_ops(recorder, {.address = block.address,
                             .size = bytes,
                             .extra = static_cast<std::uint64_t>(*size),
                             .kind = RawKind::kAlloc,
                             .device = device.raw()});
}

}  // namespace peakline::capture
