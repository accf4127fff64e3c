// Private pools of the virtual GPUs' memory.
#include <torch/csrc/autograd/graph_task.h>

#include <thread>

#include "capture/recorder.h"
#include "vgpu/memory.h"

namespace peakline::vgpu {

bool Memory::begin_pool(int device, PoolId pool, PoolFilling filling) {
  const std::lock_guard guard(mutex_);
  if (!settled_) settle();
  Device& where = devices_[static_cast<std::size_t>(device)];
  std::function<bool(StreamId)> filter;
  if (filling.from == PoolFilling::From::kThisThread) {
    // A virtual GPU's backward runs on the calling thread, a real one's on another: what it
    // allocates is not led here unless backward itself has begun to fill the pool.
    const int backward = torch::autograd::get_current_graph_task_id();
    filter = [thread = std::this_thread::get_id(), backward](StreamId) {
      return std::this_thread::get_id() == thread &&
             torch::autograd::get_current_graph_task_id() == backward;
    };
  } else if (filling.from == PoolFilling::From::kStreams) {
    auto streams =
        std::make_shared<std::set<std::uint32_t>>(filling.streams.begin(), filling.streams.end());
    where.filling[pool] = streams;
    filter = [streams](StreamId stream) { return streams->contains(stream.raw()); };
  }
  return where.allocator->begin_pool(pool, std::move(filter), filling.use);
}

void Memory::add_pool_stream(int device, PoolId pool, std::uint32_t stream) {
  const std::lock_guard guard(mutex_);
  Device& where = devices_[static_cast<std::size_t>(device)];
  if (const auto it = where.filling.find(pool); it != where.filling.end()) {
    it->second->insert(stream);
  }
}

bool Memory::end_pool(int device, PoolId pool) {
  const std::lock_guard guard(mutex_);
  Device& where = devices_[static_cast<std::size_t>(device)];
  where.filling.erase(pool);
  return where.allocator->end_pool(pool);
}

bool Memory::retain_pool(int device, PoolId pool) {
  const std::lock_guard guard(mutex_);
  if (!settled_) settle();
  return devices_[static_cast<std::size_t>(device)].allocator->retain_pool(pool);
}

bool Memory::release_pool(int device, PoolId pool) {
  const std::lock_guard guard(mutex_);
  return devices_[static_cast<std::size_t>(device)].allocator->release_pool(pool);
}

void Memory::empty_pool(int device, PoolId pool) {
  const std::lock_guard guard(mutex_);
  devices_[static_cast<std::size_t>(device)].allocator->empty_pool(pool);
}

std::optional<PoolCheckpoint> Memory::checkpoint_pool(int device, PoolId pool) {
  const std::lock_guard guard(mutex_);
  return devices_[static_cast<std::size_t>(device)].allocator->checkpoint_pool(pool);
}

std::optional<PoolRestored> Memory::restore_pool(int device, const PoolCheckpoint& checkpoint) {
  const std::lock_guard guard(mutex_);
  Device& where = devices_[static_cast<std::size_t>(device)];
  std::optional<PoolRestored> restored = where.allocator->restore_pool(checkpoint);
  if (!restored || !records()) return restored;
  for (const Address address : restored->freed) {
    recorder_->push({.address = address.raw(),
                     .kind = capture::RawKind::kFree,
                     .device = where.recorded.raw()});
  }
  for (const Allocation& created : restored->created) {
    const Block block{created.address.raw(), static_cast<std::uint64_t>(created.bytes.raw())};
    write_alloc(where, block, block.bytes, 0, nullptr, {}, Certainty::kExact);
  }
  return restored;
}

}  // namespace peakline::vgpu
