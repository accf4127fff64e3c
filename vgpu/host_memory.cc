#include "vgpu/host_memory.h"

#include <ATen/Context.h>
#include <sys/mman.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "capture/alloc_gate.h"
#include "capture/listeners.h"
#include "capture/recorder.h"
#include "vgpu/pinned.h"
#include "vgpu/values/in_host_run.h"

namespace peakline::vgpu {
namespace {

constexpr std::uint64_t kLarge = std::uint64_t{16} << 20;
// Whole numbers of these types are data, token ids for one, and programs look at their data. Weights
// are of other types.
constexpr std::uint64_t kLargeData = std::uint64_t{1} << 30;
// Many tensors of middling size are a large model, too (experts, small heads): once so many bytes of
// them have been made, more are virtual.
constexpr std::uint64_t kMiddling = std::uint64_t{1} << 20;
constexpr std::uint64_t kMiddlingInAll = std::uint64_t{128} << 20;
constexpr std::uint64_t kMapped = std::uint64_t{64} << 10;  // below, mappings cost more than pages

std::atomic<bool> g_on{false};
std::atomic<std::uint64_t> g_middling{0};  // bytes made in all

bool is_one_too_many(std::uint64_t bytes) noexcept {
  return g_middling.fetch_add(bytes, std::memory_order_relaxed) + bytes > kMiddlingInAll;
}

struct Mappings {
  std::mutex mutex;
  std::unordered_map<void*, std::uint64_t> sizes;
};
Mappings& mappings() {
  static auto* const kMappings = new Mappings;
  return *kMappings;
}

bool is_data(c10::ScalarType dtype) noexcept {
  return dtype == c10::kLong || dtype == c10::kInt || dtype == c10::kShort;
}

void* map(std::uint64_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(data != MAP_FAILED, "this process may not reserve ", bytes,
              " bytes of addresses for a tensor of the host (ulimit -v limits them)");
  madvise(data, bytes, MADV_NOHUGEPAGE);  // who reads a byte shall not be charged for 2 MiB
  const std::lock_guard guard(mappings().mutex);
  mappings().sizes.emplace(data, bytes);
  return data;
}

void unmap(void* data) noexcept {
  std::uint64_t bytes = 0;
  {
    const std::lock_guard guard(mappings().mutex);
    const auto found = mappings().sizes.find(data);
    if (found != mappings().sizes.end()) {
      bytes = found->second;
      mappings().sizes.erase(found);
    }
  }
  if (bytes > 0)
    munmap(data, bytes);
  else
    std::free(data);
}

void note_alloc(void* data, std::uint64_t bytes) {
  const auto address = reinterpret_cast<std::uint64_t>(data);
  if (capture::Recorder* recorder = capture::current_recorder()) {
    capture::push_inside_ops(*recorder, {.address = address,
                                         .size = bytes,
                                         .extra = bytes,
                                         .kind = capture::RawKind::kAlloc,
                                         .device = recorder->host().raw()});
  }
  if (capture::somebody_listens()) capture::tell_host_alloc({.address = address, .bytes = bytes});
}

void note_free(void* data) noexcept {
  const auto address = reinterpret_cast<std::uint64_t>(data);
  if (capture::Recorder* recorder = capture::current_recorder()) {
    recorder->free(recorder->host(), address, 0);
  }
  if (capture::somebody_listens()) capture::tell_free({.address = address});
}

// A storage's own data, and that it is counted.
struct Counted {
  c10::DataPtr data;
};

void release_counted(void* context) {
  const std::unique_ptr<Counted> counted(static_cast<Counted*>(context));
  note_free(counted->data.get());
}

}  // namespace

void set_virtual_host(bool on) noexcept {
  g_on.store(on, std::memory_order_relaxed);
  g_middling.store(0, std::memory_order_relaxed);
}

bool becomes_virtual(std::uint64_t bytes, c10::ScalarType dtype) noexcept {
  if (bytes < kMiddling || !g_on.load(std::memory_order_relaxed)) return false;
  if (current_engine() == nullptr || in_host_run()) return false;
  if (is_data(dtype)) return bytes >= kLargeData;
  return bytes >= kLarge || is_one_too_many(bytes);
}

void* reserve_host(std::uint64_t bytes, bool pinned) {
  if (bytes == 0) return nullptr;
  void* data = bytes >= kMapped ? map(bytes) : std::calloc(1, bytes);
  TORCH_CHECK(data != nullptr, "the host has no ", bytes, " bytes left");
  note_alloc(data, bytes);
  if (pinned) {
    at::globalContext().lazyInitDevice(at::kCUDA);  // torch asks nobody else whether it is pinned
    note_pinned(data, bytes);
  }
  return data;
}

void count_on_host(c10::StorageImpl& storage) {
  void* data = storage.mutable_data();
  if (data == nullptr || storage.data_ptr().get_deleter() == &release_counted) return;
  auto counted = std::make_unique<Counted>();
  counted->data = storage.set_data_ptr(c10::DataPtr(nullptr, storage.device()));
  storage.set_data_ptr_noswap({data, counted.release(), &release_counted, storage.device()});
  note_alloc(data, storage.nbytes());
}

void give_back_host(void* data) noexcept {
  if (data == nullptr) return;
  forget_pinned(data);
  note_free(data);  // before it happens: another thread may get the address at once
  unmap(data);
}

}  // namespace peakline::vgpu
