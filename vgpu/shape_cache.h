// What ops did to shapes the last time: outputs, aliases, allocations.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <peakline/cost.h>
#include <peakline/kernel_memory.h>

namespace peakline::vgpu {

using Dims = c10::SmallVector<std::int64_t, 5>;

// A tensor's layout without its bytes.
struct Layout {
  caffe2::TypeMeta dtype;
  Dims sizes;
  Dims strides;
  std::int64_t offset = 0;
};

// One return value of an op. Tensors of a call are numbered in the order of its arguments, lists
// flattened.
struct Output {
  enum class Kind : std::uint8_t {
    kUndefined,  // a tensor that is not there
    kFresh,      // over new storage number `source`
    kArgument,   // argument tensor number `source` itself
    kView,       // another view of the storage of argument tensor number `source`
    kValue,      // not a tensor
    kList,       // `items`
  };
  Kind kind = Kind::kUndefined;
  int source = 0;
  Layout layout;
  c10::IValue value;
  std::vector<Output> items;
};

// An argument that the op gives other sizes.
struct Resized {
  int tensor = 0;
  Dims sizes;
  Dims strides;
};

struct ShapeEntry {
  std::vector<std::uint64_t> key;
  std::vector<Output> outputs;
  std::vector<std::uint64_t> fresh;  // bytes of the new storages
  std::vector<Resized> resized;
  std::vector<Step> program;  // how they are allocated, with what else the op needs
  OpTime time;                // on the GPU
};

// From an op and the layout of its arguments to what it does. Keys are compared in full: two calls
// share an entry only if they are alike. Thread-safe; entries stay where they are until clear().
class ShapeCache {
 public:
  // Null when nothing is known. `hash` is hash_words(key).
  const ShapeEntry* find(std::uint64_t hash, std::span<const std::uint64_t> key) noexcept;
  const ShapeEntry* add(std::uint64_t hash, std::unique_ptr<ShapeEntry> entry);
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    const ShapeEntry* entry = nullptr;
  };
  void place(Slot slot) noexcept;

  std::mutex mutex_;
  std::vector<Slot> slots_ = std::vector<Slot>(4096);
  std::deque<std::unique_ptr<ShapeEntry>> entries_;
};

std::uint64_t hash_words(std::span<const std::uint64_t> words) noexcept;

}  // namespace peakline::vgpu
