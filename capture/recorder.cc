#include "capture/recorder.h"

#include <cxxabi.h>
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

// One for a recording that is to begin; given back when it does not.
class TakenQueue {
 public:
  TakenQueue() {
    auto& idle = idle_queues();
    idle.reserve(idle.size() + 1);  // giving it back takes no memory
    if (idle.empty()) idle.push_back(std::make_unique<EventQueue>());
    queue_ = std::move(idle.back());
    idle.pop_back();
  }
  ~TakenQueue() {
    if (queue_ != nullptr) idle_queues().push_back(std::move(queue_));
  }
  TakenQueue(const TakenQueue&) = delete;
  TakenQueue& operator=(const TakenQueue&) = delete;
  EventQueue& operator*() const { return *queue_; }
  void keep() { static_cast<void>(queue_.release()); }

 private:
  std::unique_ptr<EventQueue> queue_;
};

std::string thread_name() {
  char name[32] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  const auto id = static_cast<long>(::syscall(SYS_gettid));
  if (id == static_cast<long>(::getpid())) return "main";
  return std::string(*name != 0 ? name : "thread") + "-" + std::to_string(id);
}

}  // namespace

Result<Recorder*> Recorder::start(Spool& spool, const RunInfo& info, const StackOptions& stacks,
                                  WriterOptions options) {
  Result<std::unique_ptr<Sink>> sink = spool.sink();
  if (!sink.ok()) return sink.status();
  return start(std::move(*sink), info, std::move(options), {}, stacks);
}

Result<Recorder*> Recorder::start(std::unique_ptr<Sink> sink, const RunInfo& info,
                                  WriterOptions options, EventQueue::Patience patience,
                                  const StackOptions& stacks) {
  try {
    // One that never begins is known to nobody, and goes away.
    TakenQueue queue;
    auto recorder = std::unique_ptr<Recorder>(
        new Recorder(*queue, std::move(sink), info, std::move(options), patience, stacks));
    PEAKLINE_RETURN_IF_ERROR(recorder->begin());
    queue.keep();
    return recorder.release();
  } catch (const std::exception& error) {
    return io_error(std::string("cannot begin a recording: ") + error.what());
  }
}

Recorder::Recorder(EventQueue& queue, std::unique_ptr<Sink> sink, const RunInfo& info,
                   WriterOptions options, EventQueue::Patience patience, const StackOptions& stacks)
    : queue_(queue),
      patience_(patience),
      serial_(++g_serial),
      stacks_(stacks),
      writer_(std::in_place, std::move(sink), info, std::move(options)) {}

Status Recorder::begin() {
  PEAKLINE_RETURN_IF_ERROR(writer_->status());
  queue_.open(serial_, patience_);
  try {
    words_.device({"cpu", "", Bytes{}});
    this_thread();
    ForkGuard::add(
        ForkOrder::kRecording, this, [this] { before_fork(); },
        [this](bool in_child) { after_fork(in_child); });
    g_live.store(this, std::memory_order_release);
    thread_ = std::thread([this] { write_loop(); });
  } catch (const std::exception& error) {  // no thread, or no memory
    g_live.store(nullptr, std::memory_order_release);
    ForkGuard::remove(this);
    queue_.close();
    return io_error(std::string("cannot start the thread that writes the recording: ") +
                    error.what());
  }
  return {};
}

std::uint16_t Recorder::meet_thread() noexcept {
  undisturbed(*this, [this] { t_number = {serial_, words_.thread(thread_name()).raw()}; });
  return t_number.recorder == serial_ ? t_number.id : std::uint16_t{0};
}

void Recorder::fail(std::string_view why) noexcept {
  if (!fault_.set(why)) return;
  Recorder* mine = this;
  g_recorder.compare_exchange_strong(mine, nullptr, std::memory_order_acq_rel);
  if (auto* tell = tell_.load(std::memory_order_acquire)) tell();
}

std::string_view Recorder::fault() noexcept {
  if (queue_.abandoned() && live() && !fault_.is_set()) {
    fail("what is recorded could not be written for a minute, so the disk may be stuck");
  }
  return fault_.text();
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

namespace {

// Gives a batch back however it is done with.
class TakenBatch {
 public:
  TakenBatch(EventQueue& queue, int wait_ms) : queue_(queue), batch_(queue.take(wait_ms)) {}
  ~TakenBatch() {
    if (batch_ != nullptr) queue_.release(batch_);
  }
  TakenBatch(const TakenBatch&) = delete;
  TakenBatch& operator=(const TakenBatch&) = delete;
  [[nodiscard]] const EventQueue::Batch* get() const noexcept { return batch_; }

 private:
  EventQueue& queue_;
  const EventQueue::Batch* batch_;
};

}  // namespace

// A cancelled thread unwinds by an exception that has no object: catching it by reference is what glibc asks for,
// and what UBSan takes for a null reference.
[[gnu::no_sanitize("null")]] void Recorder::write_loop() {
  // However this thread ends, nobody waits for it afterwards.
  struct Ending {
    Recorder& recorder;
    ~Ending() {
      if (recorder.stopping_.load(std::memory_order_acquire)) return;
      recorder.queue_.abandon();
      recorder.fail("the thread that writes the recording ended");
    }
  } const ending{*this};
  pthread_setname_np(pthread_self(), "peakline");
  bool whole = false;
  try {
    record();
    whole = writer_->status().ok();
  } catch (const abi::__forced_unwind&) {
    throw;  // somebody cancelled the thread
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("an unknown error");
  }
  if (!fault_.is_set()) return;
  end_early(whole);
  drop_rest();
}

void Recorder::record() {
  Assembler assembler(*writer_, host().raw(), stacks_.from_bytes);
  SourceLines sources;
  SourceLines* const texts = stacks_.source ? &sources : nullptr;
  StepTape tape(assembler, [this](const ExpectedAllocs* allocs) {
    if (auto* expect = expect_.load(std::memory_order_acquire)) expect(allocs);
  });
  auto flushed = std::chrono::steady_clock::now();
  while (!fault_.is_set()) {
    const bool last = stopping_.load(std::memory_order_acquire);
    const std::uint64_t asked = flushes_asked_.load(std::memory_order_acquire);
    const TakenBatch batch(queue_, last ? 0 : kIdleWaitMs);
    if (batch.get() != nullptr) write_batch(*batch.get(), assembler, tape, texts);
    const auto now = std::chrono::steady_clock::now();
    if (asked != flushes_done_.load(std::memory_order_relaxed) || now - flushed > kFlushEvery) {
      flush(asked);
      flushed = now;
    }
    if (!writer_->status().ok()) fail(writer_->status().message());
    if (last && batch.get() == nullptr) break;
  }
  words_.tell(*writer_, texts);
  tape.finish();
  assembler.finish();
}

void Recorder::write_batch(const EventQueue::Batch& batch, Assembler& assembler, StepTape& tape,
                           SourceLines* texts) {
  words_.tell(*writer_, texts);
  const bool repeats = expect_.load(std::memory_order_acquire) != nullptr;
  for (const RawEvent& raw : batch.events()) {
    if (repeats) {
      tape.on(raw);
    } else {
      assembler.on(raw);
    }
  }
}

void Recorder::flush(std::uint64_t asked) {
  {  // somebody may read what is there and end the process
    const std::lock_guard guard(info_mutex_);
    for (const auto& [key, value] : late_info_) writer_->info(key, value);
    late_info_.clear();
  }
  static_cast<void>(writer_->flush());
  flushes_done_.store(asked, std::memory_order_release);
}

// What was recorded before the fault is kept, and says that there is no more. `whole`: the chunk being
// filled is part of it.
void Recorder::end_early(bool whole) noexcept {
  try {
    const std::string why = "tracking was turned off (" + std::string(fault_.text()) +
                            "), so this is the memory of what ran before";
    if (whole) {
      writer_->info("partial", why);
    } else {
      writer_->give_up(why);
    }
    static_cast<void>(writer_->close());
  } catch (const std::exception&) {  // then the file ends with its last whole chunk
  }
}

void Recorder::drop_rest() {
  while (!stopping_.load(std::memory_order_acquire)) const TakenBatch dropped(queue_, kIdleWaitMs);
}

Status Recorder::sync() {
  if (!live() || fault_.is_set()) return {};
  queue_.wait_until_drained();
  const std::uint64_t mine = flushes_asked_.fetch_add(1, std::memory_order_acq_rel) + 1;
  constexpr auto kPause = std::chrono::microseconds(200);
  const auto longest = patience_.turns * patience_.turn / kPause;
  for (auto pauses = longest; flushes_done_.load(std::memory_order_acquire) < mine; --pauses) {
    if (pauses == 0) queue_.abandon();
    if (fault_.is_set() || queue_.abandoned()) break;
    queue_.wake();
    std::this_thread::sleep_for(kPause);
  }
  return {};
}

Status Recorder::stop() {
  if (!live()) return {};
  static_cast<void>(fault());  // also notices one that nobody has asked for
  if (!queue_.abandoned()) queue_.close();
  g_live.store(nullptr, std::memory_order_release);
  stopping_.store(true, std::memory_order_release);
  ForkGuard::remove(this);
  if (queue_.abandoned()) {  // the writer stays as the thread left it, or still uses it
    thread_.detach();
    return io_error(std::string(fault_.text()));
  }
  queue_.wake();
  thread_.join();
  Status status;
  if (fault_.is_set()) end_early(false);  // if the thread had no memory for it
  undisturbed(*this, [&] {
    for (const auto& [key, value] : late_info_) writer_->info(key, value);
    status = writer_->close();
    writer_.reset();
    words_.clear();
    idle_queues().emplace_back(&queue_);
  });
  if (fault_.is_set()) return io_error(std::string(fault_.text()));
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
