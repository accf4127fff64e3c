#include "capture/listeners.h"

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <mutex>
#include <utility>
#include <vector>

#include "capture/fork_guard.h"

namespace peakline::capture {

std::atomic<int> g_listening{0};

namespace {

namespace profiler = torch::profiler::impl;
using c10::ThreadLocalDebugInfo;

// torch hands these on to autograd's threads. The first is the profiler's, and where devices report
// memory; in the second, which nobody else uses, a thread finds who listens to it.
const auto kProfilerPlace = c10::DebugInfoKind::PROFILER_STATE;
const auto kOurPlace = c10::DebugInfoKind::TEST_INFO_2;

struct Entry {
  std::shared_ptr<Listener> listener;
  Wants wants;
};

// Replaced whole, never changed, so that another thread can go on with the old one.
class Entries {
 public:
  using List = std::vector<Entry>;

  void add(Entry entry) {
    auto changed = copy();
    changed->push_back(std::move(entry));
    put(std::move(changed));
  }
  void remove(const Listener* listener) {
    auto changed = copy();
    std::erase_if(*changed, [=](const Entry& entry) { return entry.listener.get() == listener; });
    put(std::move(changed));
  }
  [[nodiscard]] bool empty() const { return get()->empty(); }

  // Calls `tell(listener)` for those whose wants are `wanted`.
  template <class Wanted, class Tell>
  void each(Wanted wanted, Tell tell) const noexcept {
    const auto list = get();
    for (const Entry& entry : *list) {
      if (!wanted(entry.wants)) continue;
      try {
        tell(*entry.listener);
      } catch (...) {  // torch's code must not see it
      }
    }
  }

 private:
  [[nodiscard]] std::shared_ptr<const List> get() const {
    const std::lock_guard<SpinLock> guard(lock_);
    return list_;
  }
  [[nodiscard]] std::shared_ptr<List> copy() const { return std::make_shared<List>(*get()); }
  void put(std::shared_ptr<const List> list) {
    const std::lock_guard<SpinLock> guard(lock_);
    list_.swap(list);  // the old one ends outside the lock
  }

  mutable ForkSafe<SpinLock> lock_{ForkOrder::kLast};
  std::shared_ptr<const List> list_ = std::make_shared<const List>();
};

Entries& everyone() {
  static Entries* const kEveryone = new Entries;
  return *kEveryone;
}

constexpr auto kAny = [](const Wants&) { return true; };
constexpr auto kDevice = [](const Wants& wants) { return wants.device_memory; };

}  // namespace

// Those who listen to one thread. torch casts what is in the profiler's place to ProfilerStateBase,
// so it has to be one. In that place it is only while somebody wants devices' memory.
class ListenerScope final : public profiler::ProfilerStateBase,
                            public std::enable_shared_from_this<ListenerScope> {
 public:
  ListenerScope()
      : ProfilerStateBase(profiler::ProfilerConfig(profiler::ProfilerState::CPU,
                                                   /*report_input_shapes=*/false,
                                                   /*profile_memory=*/false)) {}

  static ListenerScope* here() noexcept {
    return static_cast<ListenerScope*>(ThreadLocalDebugInfo::get(kOurPlace));
  }
  static std::shared_ptr<ListenerScope> here_or_new() {
    if (here() != nullptr) return here()->shared_from_this();
    auto scope = std::make_shared<ListenerScope>();
    ThreadLocalDebugInfo::_push(kOurPlace, scope);
    return scope;
  }

  Entries& entries() noexcept { return entries_; }

  void take_profilers_place() {
    if (in_profilers_place()) return;
    below_ = static_cast<c10::MemoryReportingInfoBase*>(ThreadLocalDebugInfo::get(kProfilerPlace));
    ThreadLocalDebugInfo::_push(kProfilerPlace, shared_from_this());
  }
  // torch takes places away only in the order in which they were taken. One that somebody else's lies
  // above stays, does no harm, and is used again.
  void leave_places() noexcept {
    if (in_profilers_place()) pop(kProfilerPlace);
    if (here() == this) pop(kOurPlace);
  }

  profiler::ActiveProfilerType profilerType() override {
    return profiler::ActiveProfilerType::NONE;
  }
  // Asked by the host's allocator only, whose memory is seen elsewhere and cheaper. Others report all
  // the same: devices' allocators, and memory that is shared with other processes.
  bool memoryProfilingEnabled() const override {
    return below_ != nullptr && below_->memoryProfilingEnabled();
  }
  void reportMemoryUsage(void* data, std::int64_t bytes, std::size_t total_allocated,
                         std::size_t total_reserved, c10::Device device) override {
    tell_reported(data, bytes, total_reserved, device);
    if (below_ != nullptr) {
      below_->reportMemoryUsage(data, bytes, total_allocated, total_reserved, device);
    }
  }
  void reportOutOfMemory(std::int64_t bytes, std::size_t total_allocated,
                         std::size_t total_reserved, c10::Device device) override {
    const MemoryReport report{0, static_cast<std::uint64_t>(bytes), total_reserved, device};
    entries_.each(kDevice, [&](Listener& listener) { listener.on_out_of_memory(report); });
    if (below_ != nullptr) {
      below_->reportOutOfMemory(bytes, total_allocated, total_reserved, device);
    }
  }

 private:
  void tell_reported(void* data, std::int64_t bytes, std::size_t reserved, c10::Device device) {
    const auto size = static_cast<std::uint64_t>(bytes < 0 ? -bytes : bytes);
    const MemoryReport report{reinterpret_cast<std::uint64_t>(data), size, reserved, device};
    entries_.each(kDevice, [&](Listener& listener) {
      if (bytes > 0) {
        listener.on_alloc(report);
      } else {
        listener.on_free(report);
      }
    });
  }
  [[nodiscard]] bool in_profilers_place() const noexcept {
    return ThreadLocalDebugInfo::get(kProfilerPlace) == this;
  }
  static void pop(c10::DebugInfoKind kind) noexcept {
    try {
      ThreadLocalDebugInfo::_pop(kind);
    } catch (const c10::Error&) {
    }
  }

  Entries entries_;
  // What held the profiler's place before and still gets its reports; the chain keeps it alive.
  c10::MemoryReportingInfoBase* below_ = nullptr;
};

namespace {

// A profiler looks itself up in its place at every operator; anything above it would break it.
void refuse_beside_profiler() {
  auto* holder =
      static_cast<profiler::ProfilerStateBase*>(ThreadLocalDebugInfo::get(kProfilerPlace));
  TORCH_CHECK(
      holder == nullptr || holder->profilerType() == profiler::ActiveProfilerType::NONE,
      "torch.profiler is running on this thread and holds the place where memory is reported; stop "
      "it before tracking memory");
}

}  // namespace

Listening::Listening(std::shared_ptr<Listener> listener, Wants wants)
    : listener_(std::move(listener)) {
  if (wants.device_memory) refuse_beside_profiler();
  if (wants.host_memory) {
    auto host = HostAllocatorObserver::install();
    TORCH_CHECK(host.ok(), host.status().message());
    host_ = std::move(*host);
  }
  scope_ = ListenerScope::here_or_new();
  if (wants.device_memory) scope_->take_profilers_place();
  scope_->entries().add({listener_, wants});
  everyone().add({listener_, wants});
  g_listening.fetch_add(1, std::memory_order_relaxed);
  if (wants.ops) ops_.emplace(wants.op_outputs);
}

Listening::~Listening() {
  ops_.reset();
  g_listening.fetch_sub(1, std::memory_order_relaxed);
  everyone().remove(listener_.get());
  scope_->entries().remove(listener_.get());
  if (scope_->entries().empty()) scope_->leave_places();
}

void tell_host_alloc(const MemoryReport& report) noexcept {
  ListenerScope* scope = ListenerScope::here();
  if (scope == nullptr) return;
  scope->entries().each([](const Wants& wants) { return wants.host_memory; },
                        [&](Listener& listener) { listener.on_alloc(report); });
}

void tell_free(const MemoryReport& report) noexcept {
  everyone().each(kAny, [&](Listener& listener) { listener.on_free(report); });
}

void tell_op_end(const at::RecordFunction& call, const OpFacts& op) noexcept {
  ListenerScope* scope = ListenerScope::here();
  if (scope == nullptr) return;
  scope->entries().each([](const Wants& wants) { return wants.ops; },
                        [&](Listener& listener) { listener.on_op_end(call, op); });
}

}  // namespace peakline::capture
