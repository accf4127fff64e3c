#include "capture/dropin/mem_engine.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/graph_task.h>

#include <utility>

#include "capture/fake_storage.h"
#include "capture/host_allocator.h"

namespace peakline::dropin {
namespace {

int backward_task() { return torch::autograd::get_current_graph_task_id(); }

// 0: nothing can be known of it.
BlockKey key_of(const c10::Storage& storage) {
  const c10::StorageImpl& impl = *storage.unsafeGetStorageImpl();
  if (const capture::FakeBlock* fake = capture::fake_block(impl)) return fake->address;
  return reinterpret_cast<BlockKey>(impl.data_ptr().get());
}

bool is_python(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python);
}

bool is_plain(const at::Tensor& tensor) { return !is_python(tensor) && tensor.has_storage(); }

bool on_meta(const at::Tensor& tensor) {
  return tensor.has_storage() && tensor.storage().device().is_meta();
}

std::int64_t known_bytes(const c10::Storage& storage) {
  return storage.sym_nbytes().maybe_as_int().value_or(0);
}

template <typename Use>
void each_tensor(const std::vector<c10::IValue>& values, Use use) {
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) use(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        if (tensor.defined()) use(tensor);
      }
    }
  }
}

}  // namespace

MemEngine::MemEngine(CategoryPlan plan, std::int64_t granularity, AskPython ask)
    : plan_(plan), granularity_(granularity), ask_(std::move(ask)), book_(UsageCounts(plan.other)) {
  for (auto& task : plain_backwards_) task = -1;
}

void MemEngine::start(bool fake) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    book_.drop_dead(/*externals_only=*/false);
    fake_ = fake;
  }
  listening_.emplace(
      shared_from_this(),
      capture::Wants{
          .host_memory = !fake, .device_memory = !fake, .ops = true, .op_outputs = true});
}

void MemEngine::stop() {
  listening_.reset();
  std::lock_guard<std::mutex> lock(mutex_);
  pending_.clear();
}

void MemEngine::note_backward() {
  const int task = backward_task();
  if (task == -1 || at::GradMode::is_enabled()) return;
  for (const auto& plain : plain_backwards_) {
    if (plain == task) return;
  }
  plain_backwards_[next_plain_++ % plain_backwards_.size()] = task;
}

int MemEngine::category_now() {
  if (const int category = forced; category >= 0) return category;
  if (optimizing) return plan_.optimizer;
  const int task = backward_task();
  if (task == -1 || recomputing) return plan_.activation;
  if (!at::GradMode::is_enabled()) {
    note_backward();
    return plan_.temp;
  }
  // Grad mode on inside a backward pass that runs without it: a checkpoint recomputes its forward.
  for (const auto& plain : plain_backwards_) {
    if (plain == task) return plan_.activation;
  }
  return plan_.temp;
}

std::int64_t MemEngine::rounded(std::int64_t bytes, c10::Device device) const {
  if (!device.is_cuda()) return bytes;
  return (bytes + granularity_ - 1) / granularity_ * granularity_;
}

Block MemEngine::new_block(BlockKey key, std::int64_t bytes, int category) {
  Block block;
  block.address = key;
  block.bytes = block.labelled = bytes;
  block.category = static_cast<std::int8_t>(category);
  return block;
}

void MemEngine::on_alloc(const capture::MemoryReport& report) {
  Block block = new_block(report.address, static_cast<std::int64_t>(report.bytes), category_now());
  const bool pending = capture::inside_told_op();
  if (pending) block.state = Block::State::kPending;
  std::lock_guard<std::mutex> lock(mutex_);
  book_.add(std::move(block), report.device);
  if (pending) pending_.push_back(report.address);
}

void MemEngine::on_free(const capture::MemoryReport& report) {
  std::lock_guard<std::mutex> lock(mutex_);
  book_.remove(report.address);
}

// True when the output says all there is to know about the blocks behind it.
bool MemEngine::settle(const at::Tensor& output) {
  if (!is_plain(output)) return false;
  const c10::Storage& storage = output.storage();
  Block* block = book_.find(key_of(storage));
  if (block == nullptr) return true;
  if (block->state == Block::State::kSettled && block->storage) return true;
  const c10::Device device = book_.device_of(*block);
  book_.relabel(*block, block->category, rounded(known_bytes(storage), device));
  if (!block->storage) block->storage = storage.getWeakStorageImpl();
  return true;
}

void MemEngine::set_aside_pending() {
  for (BlockKey key : pending_) {
    Block* block = book_.find(key);
    if (block != nullptr && block->state == Block::State::kPending) book_.set_aside(*block);
  }
  pending_.clear();
}

void MemEngine::on_op_end(const at::RecordFunction& call, const capture::OpFacts&) {
  if (fake_) {
    const int category = category_now();
    each_tensor(call.outputs(), [&](const at::Tensor& output) {
      if (is_python(output)) track_fake(output, category);
    });
    return;
  }
  bool all_plain = true;
  std::vector<at::Tensor> metas;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    each_tensor(call.outputs(), [&](const at::Tensor& output) {
      all_plain &= settle(output);
      if (output.is_meta() && is_plain(output)) metas.push_back(output);
    });
    // A subclass or a sparse tensor keeps its blocks out of sight: they are taken to be its own.
    if (all_plain) {
      set_aside_pending();
    } else {
      pending_.clear();
    }
  }
  for (const at::Tensor& meta : metas) book_fake(meta, meta.device(), category_now(), false);
}

std::int64_t MemEngine::book_fake(const at::Tensor& tensor, c10::Device device, int category,
                                  bool relabel) {
  const c10::Storage& storage = tensor.storage();
  const std::int64_t bytes = rounded(known_bytes(storage), device);
  const BlockKey key = capture::fake_address(*storage.unsafeGetStorageImpl());
  std::lock_guard<std::mutex> lock(mutex_);
  if (Block* block = book_.find(key)) {
    if (block->bytes != bytes) book_.resize(*block, bytes);
    if (relabel || block->labelled != bytes) {
      book_.relabel(*block, relabel ? category : block->category, bytes);
    }
    return bytes;
  }
  Block block = new_block(key, bytes, category);
  block.storage = storage.getWeakStorageImpl();
  book_.add(std::move(block), device);
  return bytes;
}

void MemEngine::track_fake(const at::Tensor& tensor, int category) {
  if (tensor.has_storage()) {
    std::lock_guard<std::mutex> lock(mutex_);
    Block* block = book_.find(key_of(tensor.storage()));
    // The usual case, a view or an in-place result of something known, needs no word from Python.
    if (block != nullptr &&
        block->bytes == rounded(known_bytes(tensor.storage()), book_.device_of(*block))) {
      return;
    }
  }
  FakeFacts facts = ask_(tensor);
  if (facts.fake && facts.device && on_meta(tensor)) {
    book_fake(tensor, *facts.device, category, false);
  }
  for (const at::Tensor& part : facts.parts) track_fake(part, category);
}

void MemEngine::track(const at::Tensor& tensor, int category) {
  if (is_python(tensor)) {
    track_fake(tensor, category);
  } else if (tensor.has_storage() && !held(tensor.storage())) {
    label_real(tensor, category);
  }
}

std::int64_t MemEngine::label_real(const at::Tensor& tensor, int category) {
  if (!tensor.has_storage()) return 0;
  const c10::Storage& storage = tensor.storage();
  if (storage.device().is_meta()) return book_fake(tensor, storage.device(), category, true);
  const std::int64_t bytes = rounded(known_bytes(storage), storage.device());
  if (bytes == 0) return 0;
  const BlockKey key = key_of(storage);
  std::lock_guard<std::mutex> lock(mutex_);
  Block* block = book_.find(key);
  if (block != nullptr) {
    book_.relabel(*block, category, bytes);
    if (!block->storage) block->storage = storage.getWeakStorageImpl();
    return bytes;
  }
  Block external = new_block(key, bytes, category);
  external.storage = storage.getWeakStorageImpl();
  book_.add(std::move(external), storage.device());
  // Who tells of the end of a block older than the tracker? CUDA's allocator does, the host's when it
  // is asked to; of others' memory nobody does.
  const bool told = storage.device().is_cuda() ||
                    capture::HostAllocatorObserver::watch_free(*storage.unsafeGetStorageImpl());
  if (!told) book_.note_external(key);
  return bytes;
}

std::int64_t MemEngine::label(const at::Tensor& tensor, int category) {
  if (!tensor.defined()) return 0;
  if (!is_python(tensor)) return label_real(tensor, category);
  FakeFacts facts = ask_(tensor);
  std::int64_t bytes = 0;
  if (facts.device && on_meta(tensor)) {
    bytes += book_fake(tensor, *facts.device, category, true);
  } else if (facts.device) {
    bytes += label_real(tensor, category);
  }
  for (const at::Tensor& part : facts.parts) bytes += label(part, category);
  return bytes;
}

std::optional<MemEngine::Held> MemEngine::held(const c10::Storage& storage) {
  std::lock_guard<std::mutex> lock(mutex_);
  Block* block = book_.find(key_of(storage));
  if (block == nullptr) return std::nullopt;
  return Held{plan_.other < 0 ? block->bytes : block->labelled, block->category,
              book_.device_of(*block)};
}

std::int64_t MemEngine::held_bytes(const at::Tensor& tensor) {
  if (tensor.has_storage()) {
    if (auto found = held(tensor.storage())) return found->bytes;
  }
  std::int64_t bytes = 0;
  if (is_python(tensor)) {
    for (const at::Tensor& part : ask_(tensor).parts) bytes += held_bytes(part);
  }
  return bytes;
}

MemEngine::BeforeResize MemEngine::before_resize(const c10::Storage& storage) {
  if (storage.device().is_meta()) return {};
  std::lock_guard<std::mutex> lock(mutex_);
  auto parked = parked_.find(storage.unsafeGetStorageImpl());
  if (parked != parked_.end()) {
    const int category = parked->second.first.expired() ? -1 : parked->second.second;
    parked_.erase(parked);
    return {0, category};
  }
  const BlockKey key = key_of(storage);
  Block* block = book_.find(key);
  if (block == nullptr) return {};
  return {key, block->category};
}

void MemEngine::after_resize(const c10::Storage& storage, const BeforeResize& before) {
  if (storage.device().is_meta()) {
    std::lock_guard<std::mutex> lock(mutex_);
    Block* block = book_.find(key_of(storage));
    if (block == nullptr) return;
    const std::int64_t bytes = rounded(known_bytes(storage), book_.device_of(*block));
    book_.resize(*block, bytes);
    book_.relabel(*block, block->category, bytes);
    return;
  }
  if (before.category < 0) return;
  const BlockKey key = key_of(storage);
  const std::int64_t bytes = rounded(known_bytes(storage), storage.device());
  std::lock_guard<std::mutex> lock(mutex_);
  if (before.key != 0 && before.key != key) book_.remove(before.key);
  if (bytes == 0) {
    parked_.insert_or_assign(storage.unsafeGetStorageImpl(),
                             std::pair{storage.getWeakStorageImpl(), before.category});
    return;
  }
  Block* block = book_.find(key);
  if (block == nullptr) {
    block = &book_.add(new_block(key, bytes, before.category), storage.device());
    book_.note_external(key);
  }
  book_.relabel(*block, before.category, bytes);
  block->storage = storage.getWeakStorageImpl();
}

void MemEngine::set_block_bytes(BlockKey address, std::int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  Block* block = book_.find(address);
  if (block != nullptr && block->bytes < bytes) book_.resize(*block, bytes);
}

}  // namespace peakline::dropin
