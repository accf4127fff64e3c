// MemTracker's work per operator and per allocation.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "capture/dropin/mem_book.h"
#include "capture/fork_guard.h"
#include "capture/listeners.h"

namespace peakline::dropin {

// Indices into the caller's list of categories.
struct CategoryPlan {
  int activation = 0;
  int temp = 0;
  int optimizer = 0;
  int other = -1;  // -1: the list has no place for bytes with no label
};

// What a tensor subclass is; asked of Python. The callee takes the GIL.
struct FakeFacts {
  bool fake = false;                  // a FakeTensor of the mode that was on when tracking began
  std::optional<c10::Device> device;  // of a tensor with a storage of its own
  std::vector<at::Tensor> parts;      // of a wrapper: the tensors inside
};
using AskPython = std::function<FakeFacts(const at::Tensor&)>;

// A real run is followed by its allocators: every block counts, operators only say which blocks
// hold tensors. Under FakeTensorMode there is no allocator: the storages of operator outputs count,
// and each reports its own end. Thread-safe. Create with std::make_shared.
class MemEngine final : public capture::Listener, public std::enable_shared_from_this<MemEngine> {
 public:
  MemEngine(CategoryPlan plan, std::int64_t granularity, AskPython ask);

  void start(bool fake);
  void stop();

  // What new memory is, at this moment.
  std::atomic<bool> optimizing{false}, recomputing{false};
  std::atomic<int> forced{-1};  // a category; -1: by the moment
  [[nodiscard]] int category_now();
  // To be called inside a backward pass and outside recomputation: learns how it runs.
  void note_backward();

  // The storage of `tensor` is of this category from now on. Returns its bytes.
  std::int64_t label(const at::Tensor& tensor, int category);
  // As for an operator's output: a new storage gets the category of the moment.
  void track(const at::Tensor& tensor, int category);
  struct Held {
    std::int64_t bytes;
    int category;
    c10::Device device;
  };
  [[nodiscard]] std::optional<Held> held(const c10::Storage& storage);
  // The tracked bytes behind `tensor`, of a wrapper the sum over its parts.
  [[nodiscard]] std::int64_t held_bytes(const at::Tensor& tensor);

  // Around UntypedStorage.resize_, which no operator reports.
  struct BeforeResize {
    BlockKey key = 0;
    int category = -1;
  };
  BeforeResize before_resize(const c10::Storage& storage);
  void after_resize(const c10::Storage& storage, const BeforeResize& before);

  // The real size of a CUDA block that was there when tracking began.
  void set_block_bytes(BlockKey address, std::int64_t bytes);

  template <typename Use>
  auto with_book(Use use) {
    std::lock_guard<std::mutex> lock(mutex_);
    return use(book_);
  }

  void on_alloc(const capture::MemoryReport& report) override;
  void on_free(const capture::MemoryReport& report) override;
  void on_op_end(const at::RecordFunction& call, const capture::OpFacts& op) override;

 private:
  [[nodiscard]] std::int64_t rounded(std::int64_t bytes, c10::Device device) const;
  [[nodiscard]] static Block new_block(BlockKey key, std::int64_t bytes, int category);
  bool settle(const at::Tensor& output);
  void set_aside_pending();
  void track_fake(const at::Tensor& tensor, int category);
  std::int64_t label_real(const at::Tensor& tensor, int category);
  std::int64_t book_fake(const at::Tensor& tensor, c10::Device device, int category, bool relabel);

  const CategoryPlan plan_;
  const std::int64_t granularity_;
  const AskPython ask_;
  bool fake_ = false;
  std::array<std::atomic<int>, 8> plain_backwards_;  // graph tasks known to run with grad mode off
  std::atomic<unsigned> next_plain_{0};

  capture::ForkSafe<std::mutex> mutex_{capture::ForkOrder::kListeners};
  MemBook book_;
  std::vector<BlockKey> pending_;
  std::unordered_map<c10::StorageImpl*, std::pair<WeakStorage, int>> parked_;  // resized to nothing

  std::optional<capture::Listening> listening_;
};

}  // namespace peakline::dropin
