#include "capture/recorder.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>

#include "capture/assembler.h"

namespace peakline::capture {

std::atomic<Recorder*> g_recorder{nullptr};

namespace {

std::atomic<std::uint64_t> g_serial{0};
constexpr auto kFlushEvery = std::chrono::seconds(1);
constexpr int kIdleWaitMs = 100;

// A child made by fork has this memory but not the writing thread: it must not record.
void forget_in_child() { g_recorder.store(nullptr, std::memory_order_release); }

std::string thread_name() {
  char name[32] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  const auto id = static_cast<long>(::syscall(SYS_gettid));
  if (id == static_cast<long>(::getpid())) return "main";
  return std::string(*name != 0 ? name : "thread") + "-" + std::to_string(id);
}

}  // namespace

Result<std::unique_ptr<Recorder>> Recorder::start(std::shared_ptr<Spool> spool,
                                                  const RunInfo& info) {
  static const int registered = pthread_atfork(nullptr, nullptr, &forget_in_child);
  if (registered != 0) return io_error("cannot prepare for forked processes: out of memory");
  Result<std::unique_ptr<Sink>> sink = spool->sink();
  if (!sink.ok()) return sink.status();
  return std::unique_ptr<Recorder>(
      new Recorder(std::move(spool), std::move(*sink), info));
}

Recorder::Recorder(std::shared_ptr<Spool> spool, std::unique_ptr<Sink> sink, const RunInfo& info)
    : spool_(std::move(spool)),
      writer_(std::move(sink), info),
      serial_(++g_serial),
      owner_pid_(::getpid()) {
  words_.device({"cpu", "", Bytes{}});
  this_thread();
  thread_ = std::thread([this] { write_loop(); });
}

Recorder::~Recorder() {
  if (owner_pid_ != ::getpid()) {
    // The writing thread stayed in the parent; there is nothing to join here.
    thread_.detach();
  } else if (thread_.joinable()) {
    static_cast<void>(stop());
  }
}

std::uint16_t Recorder::this_thread() noexcept {
  struct Known {
    std::uint64_t serial;
    std::uint16_t id;
  };
  thread_local Known known{0, 0};
  if (known.serial != serial_) known = {serial_, words_.thread(thread_name()).raw()};
  return known.id;
}

void Recorder::write_loop() {
  pthread_setname_np(pthread_self(), "peakline");
  Assembler assembler(writer_, host().raw());
  auto flushed = std::chrono::steady_clock::now();
  for (;;) {
    const bool last = stopping_.load(std::memory_order_acquire);
    const bool asked = flush_asked_.exchange(false, std::memory_order_acq_rel);
    const EventQueue::Batch* batch = queue_.take(last ? 0 : kIdleWaitMs);
    if (batch != nullptr) {
      words_.tell(writer_);
      for (const RawEvent& raw : batch->events()) assembler.on(raw);
    }
    const auto now = std::chrono::steady_clock::now();
    if (asked || now - flushed > kFlushEvery) {
      static_cast<void>(writer_.flush());
      flushed = now;
    }
    if (batch != nullptr) queue_.release(batch);
    if (last && batch == nullptr) break;
  }
  words_.tell(writer_);
  assembler.finish();
}

Status Recorder::sync() {
  if (!thread_.joinable()) return writer_.status();
  queue_.wait_until_drained();
  // A marker of no name carries the request behind everything that was pushed before.
  flush_asked_.store(true, std::memory_order_release);
  queue_.wake();
  while (flush_asked_.load(std::memory_order_acquire)) std::this_thread::yield();
  queue_.wait_until_drained();
  return {};
}

Status Recorder::stop() {
  if (owner_pid_ != ::getpid()) return {};
  if (!thread_.joinable()) return writer_.status();
  stopping_.store(true, std::memory_order_release);
  queue_.wake();
  thread_.join();
  for (const auto& [key, value] : late_info_) writer_.info(key, value);
  return writer_.close();
}

void Recorder::info(std::string key, std::string value) {
  const std::lock_guard guard(info_mutex_);
  late_info_[std::move(key)] = std::move(value);
}

void Recorder::alloc(DeviceId device, std::uint64_t address, std::uint64_t bytes,
                     std::uint64_t requested, std::uint32_t stream) noexcept {
  push({.address = address,
        .size = bytes,
        .extra = requested,
        .id = stream,
        .kind = RawKind::kAlloc,
        .device = device.raw()});
}

void Recorder::free(DeviceId device, std::uint64_t address, std::uint64_t bytes) noexcept {
  push({.address = address, .size = bytes, .kind = RawKind::kFree, .device = device.raw()});
}

void Recorder::label(DeviceId device, std::uint64_t address, CategoryId category, ModuleId module,
                     NameId name) noexcept {
  push({.address = address,
        .size = pack_owner(module.raw(), name.raw()),
        .id = category.raw(),
        .kind = RawKind::kLabel,
        .device = device.raw()});
}

void Recorder::phase(Phase phase, bool begins) noexcept {
  push({.id = static_cast<std::uint32_t>(phase),
        .kind = begins ? RawKind::kPhaseBegin : RawKind::kPhaseEnd});
}

void Recorder::lost(Loss loss, std::uint64_t count) noexcept {
  push({.size = count, .id = static_cast<std::uint32_t>(loss), .kind = RawKind::kLost});
}

}  // namespace peakline::capture
