#include "capture/recorder.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>

#include "capture/assembler.h"
#include "capture/fork_guard.h"
#include "capture/step_tape.h"

namespace peakline::capture {

std::atomic<Recorder*> g_recorder{nullptr};
constinit thread_local ThreadNumber t_number __attribute__((tls_model("initial-exec")));

namespace {

std::atomic<std::uint64_t> g_serial{0};
constexpr auto kFlushEvery = std::chrono::seconds(1);
constexpr int kIdleWaitMs = 100;

std::atomic<const Recorder*> g_live{nullptr};

// Queues are used again, since a late push must always find one.
std::vector<std::unique_ptr<EventQueue>>& idle_queues() {
  static auto* const kQueues = new std::vector<std::unique_ptr<EventQueue>>;
  return *kQueues;
}

EventQueue& take_queue() {
  auto& idle = idle_queues();
  if (idle.empty()) return *new EventQueue;
  EventQueue& queue = *idle.back().release();
  idle.pop_back();
  return queue;
}

std::string thread_name() {
  char name[32] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  const auto id = static_cast<long>(::syscall(SYS_gettid));
  if (id == static_cast<long>(::getpid())) return "main";
  return std::string(*name != 0 ? name : "thread") + "-" + std::to_string(id);
}

}  // namespace

Result<Recorder*> Recorder::start(Spool& spool, const RunInfo& info) {
  Result<std::unique_ptr<Sink>> sink = spool.sink();
  if (!sink.ok()) return sink.status();
  return new Recorder(std::move(*sink), info);
}

Recorder::Recorder(std::unique_ptr<Sink> sink, const RunInfo& info)
    : queue_(take_queue()), serial_(++g_serial), writer_(std::in_place, std::move(sink), info) {
  queue_.open(serial_);
  g_live.store(this, std::memory_order_release);
  ForkGuard::add(
      ForkOrder::kRecording, this, [this] { before_fork(); },
      [this](bool in_child) { after_fork(in_child); });
  words_.device({"cpu", "", Bytes{}});
  this_thread();
  thread_ = std::thread([this] { write_loop(); });
}

std::uint16_t Recorder::meet_thread() noexcept {
  t_number = {serial_, words_.thread(thread_name()).raw()};
  return t_number.id;
}

bool Recorder::live() const noexcept { return g_live.load(std::memory_order_acquire) == this; }

void Recorder::before_fork() {
  queue_.before_fork();
  words_.mutex().lock();
  info_mutex_.lock();
}

void Recorder::after_fork(bool in_child) {
  if (in_child) {
    g_live.store(nullptr, std::memory_order_release);
    g_recorder.store(nullptr, std::memory_order_release);
  }
  info_mutex_.unlock();
  words_.mutex().unlock();
  queue_.after_fork(in_child);
}

void Recorder::write_loop() {
  pthread_setname_np(pthread_self(), "peakline");
  Assembler assembler(*writer_, host().raw());
  StepTape tape(assembler, [this](const ExpectedAllocs* allocs) {
    if (auto* expect = expect_.load(std::memory_order_acquire)) expect(allocs);
  });
  const auto write_info = [this] {  // somebody may read what is there and end the process
    const std::lock_guard guard(info_mutex_);
    for (const auto& [key, value] : late_info_) writer_->info(key, value);
    late_info_.clear();
  };
  auto flushed = std::chrono::steady_clock::now();
  for (;;) {
    const bool last = stopping_.load(std::memory_order_acquire);
    const std::uint64_t asked = flushes_asked_.load(std::memory_order_acquire);
    const EventQueue::Batch* batch = queue_.take(last ? 0 : kIdleWaitMs);
    if (batch != nullptr) {
      words_.tell(*writer_);
      const bool repeats = expect_.load(std::memory_order_acquire) != nullptr;
      for (const RawEvent& raw : batch->events()) {
        if (repeats) {
          tape.on(raw);
        } else {
          assembler.on(raw);
        }
      }
    }
    const auto now = std::chrono::steady_clock::now();
    if (asked != flushes_done_.load(std::memory_order_relaxed) || now - flushed > kFlushEvery) {
      write_info();
      static_cast<void>(writer_->flush());
      flushed = now;
      flushes_done_.store(asked, std::memory_order_release);
    }
    if (batch != nullptr) queue_.release(batch);
    if (last && batch == nullptr) break;
  }
  words_.tell(*writer_);
  tape.finish();
  assembler.finish();
}

Status Recorder::sync() {
  if (!live()) return {};
  queue_.wait_until_drained();
  const std::uint64_t mine = flushes_asked_.fetch_add(1, std::memory_order_acq_rel) + 1;
  while (flushes_done_.load(std::memory_order_acquire) < mine) {
    queue_.wake();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return {};
}

Status Recorder::stop() {
  if (!live()) return {};
  queue_.close();
  g_live.store(nullptr, std::memory_order_release);
  stopping_.store(true, std::memory_order_release);
  queue_.wake();
  thread_.join();
  for (const auto& [key, value] : late_info_) writer_->info(key, value);
  Status status = writer_->close();
  writer_.reset();
  words_.clear();
  ForkGuard::remove(this);
  idle_queues().emplace_back(&queue_);
  return status;
}

void Recorder::info(std::string key, std::string value) {
  const std::lock_guard guard(info_mutex_);
  late_info_[std::move(key)] = std::move(value);
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
