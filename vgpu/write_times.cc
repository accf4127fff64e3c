#include "vgpu/write_times.h"

#include <bit>

#include "vgpu/op_call.h"
#include "vgpu/shape_cache.h"

namespace peakline::vgpu {
namespace {

// Keys of other entries begin with an op.
constexpr char kWrites = 0;

void add_layout(std::vector<std::uint64_t>& words, const at::Tensor& tensor) {
  words.push_back(static_cast<std::uint64_t>(tensor.scalar_type()));
  words.push_back(static_cast<std::uint64_t>(tensor.dim()));
  for (const std::int64_t size : tensor.sizes())
    words.push_back(std::bit_cast<std::uint64_t>(size));
  for (const std::int64_t stride : tensor.strides()) {
    words.push_back(std::bit_cast<std::uint64_t>(stride));
  }
}

OpTime time_of(const Engine& engine, const char* name, const at::Tensor& self,
               const at::Tensor& source) {
  OpCall call;
  call.name = name;
  call.arguments.emplace_back(meta_of(self));
  if (source.defined()) call.arguments.emplace_back(meta_of(source));
  call.outputs.push_back({meta_of(self), false});
  return op_time(call, engine.profile(), {});
}

}  // namespace

void tell_clock_of_write(Engine& engine, const char* name, const at::Tensor& self,
                         const at::Tensor& source) {
  if (!engine.clock().on()) return;
  const int device = static_cast<int>(self.device().index());
  thread_local std::vector<std::uint64_t> key;
  key.assign({std::bit_cast<std::uint64_t>(&kWrites), std::bit_cast<std::uint64_t>(name)});
  add_layout(key, self);
  if (source.defined()) add_layout(key, source);
  const std::uint64_t hash = hash_words(key);
  const ShapeEntry* entry = engine.cache().find(hash, key);
  if (entry == nullptr) {
    auto made = std::make_unique<ShapeEntry>();
    made->time = time_of(engine, name, self, source);
    made->key = key;
    entry = engine.cache().add(hash, std::move(made));
  }
  engine.clock().op(device, entry->time);
}

}  // namespace peakline::vgpu
