#include "capture/session.h"

#include <c10/util/Exception.h>

#include <peakline/size_bound.h>

#include "capture/call_stacks.h"
#include "capture/cuda_reports.h"
#include "capture/cuda_trace.h"
#include "capture/fake_storage.h"
#include "capture/tensor_places.h"

namespace peakline::capture {
namespace {

constexpr std::uint64_t kCudaRounding = 512;
Session* g_session = nullptr;  // that is not stopped; under the GIL where there is one

}  // namespace

Result<Recorder*> Session::begin(Spool& spool, const SessionOptions& options) {
  // A forked child may record for itself: its parent's session is only in the way.
  if (g_session != nullptr && !g_session->recorder_.live()) static_cast<void>(g_session->stop());
  if (g_session != nullptr) {
    return unsupported(
        "peakline is already tracking this process, and one recording cannot contain another; "
        "leave the first track() block before entering the next, and have none in a script of "
        "peakline run or estimate, which track all of it");
  }
  WriterOptions writing;
  if (options.max_size > 0) writing.filter = make_size_bound(Bytes(options.max_size));
  return Recorder::start(spool, options.info, options.stacks, std::move(writing));
}

Result<std::unique_ptr<Session>> Session::start(Spool& spool, const SessionOptions& options) {
  Result<Recorder*> recorder = begin(spool, options);
  if (!recorder.ok()) return recorder.status();
  return std::unique_ptr<Session>(new Session(**recorder, options));
}

Session::Session(Recorder& recorder, const SessionOptions& options)
    : recorder_(recorder),
      devices_(*new Devices(recorder)),
      labels_(recorder, devices_),
      options_(options) {
  g_session = this;
}

Session::~Session() { static_cast<void>(Session::stop()); }

Status Session::watch() {
  Result<std::unique_ptr<HostAllocatorObserver>> host = HostAllocatorObserver::install();
  if (!host.ok()) return host.status();
  host_ = std::move(*host);
  if (options_.cuda) PEAKLINE_RETURN_IF_ERROR(watch_cuda());
  ops_ = std::make_unique<OpObserver>(options_.ops, takes_stacks());
  AllocGate::expect(nullptr);
  if (options_.repeats) recorder_.repeat_steps(&AllocGate::expect);
  g_recorder.store(&recorder_, std::memory_order_release);
  if (recorder_.fault().empty()) return {};
  g_recorder.store(nullptr, std::memory_order_release);
  return io_error(std::string(recorder_.fault()));
}

// The allocator's trace comes from all threads and is in nobody's way; its reports to the profiler
// are second best.
Status Session::watch_cuda() {
  if (options_.cuda_trace && CudaTrace::start(devices_)) return {};
  try {
    cuda_reports_.emplace(make_cuda_reports(recorder_, devices_), Wants{.device_memory = true});
  } catch (const c10::Error& refused) {
    return unsupported(refused.what_without_backtrace());
  }
  return {};
}

Status Session::stop() {
  if (stopped_) return {};
  stopped_ = true;
  g_session = nullptr;
  g_recorder.store(nullptr, std::memory_order_release);
  ops_.reset();
  CudaTrace::stop();
  cuda_reports_.reset();
  host_.reset();
  return recorder_.stop();
}

void Session::cuda_started() { CudaTrace::attach(); }

void Session::block(int cuda_device, std::uint64_t address, std::uint64_t bytes,
                    std::uint64_t requested, std::uint64_t stream) {
  const DeviceId device = devices_.cuda(cuda_device);
  recorder_.push({.address = address,
                  .size = bytes,
                  .extra = requested,
                  .id = CudaTrace::stream_number(stream),
                  .kind = RawKind::kAlloc,
                  .device = device.raw()});
  recorder_.label(device, address, category::kOther, ModuleId{}, NameId{});
}

void Session::segment(int cuda_device, std::uint64_t address, std::uint64_t bytes,
                      std::uint64_t stream) {
  recorder_.push({.address = address,
                  .size = bytes,
                  .id = CudaTrace::stream_number(stream),
                  .kind = RawKind::kSegmentAlloc,
                  .device = devices_.cuda(cuda_device).raw()});
}

void Session::foreign(int cuda_device, std::uint64_t bytes) {
  recorder_.push(
      {.size = bytes, .kind = RawKind::kForeignBlock, .device = devices_.cuda(cuda_device).raw()});
}

void Session::total(int cuda_device, std::uint64_t bytes) {
  CudaTrace::finish(recorder_, cuda_device);
  recorder_.push(
      {.size = bytes, .kind = RawKind::kTotal, .device = devices_.cuda(cuda_device).raw()});
}

void Session::add_tensor(const at::Tensor& tensor, CategoryId category, ModuleId module,
                         const std::string& name) {
  labels_.add(tensor, category, module, recorder_.words().name(name));
}

void Session::owned_by(const at::Tensor& tensor, ModuleId module, const std::string& name) {
  labels_.label_owner(tensor, module, recorder_.words().name(name));
}

void Session::fake_tensor(const at::Tensor& tensor, c10::Device device) {
  if (device.is_meta()) return;
  note_fake_tensor(recorder_, tensor, devices_.of(device), device.is_cuda() ? kCudaRounding : 1);
}

std::vector<std::uint64_t> Session::addresses(const at::Tensor& tensor) {
  std::vector<std::uint64_t> found;
  for_each_storage(tensor, [&](c10::StorageImpl& storage) {
    if (const Place place = place_of(storage, devices_); place.address != 0) {
      found.push_back(place.address);
    }
  });
  return found;
}

bool Session::takes_stacks() const noexcept {
  return options_.stacks.from_bytes != StackOptions::kNever;
}

void Session::phase(Phase phase, bool begins) {
  if (phase == Phase::kBackward && begins && takes_stacks()) {
    recorder_.push(stack_event(take_stack(recorder_), RawKind::kBackwardStack));
  }
  recorder_.phase(phase, begins);
}

void Session::region_begin(const std::string& name) {
  recorder_.push({.id = recorder_.words().name(name).raw(), .kind = RawKind::kRegionBegin});
}

void Session::region_end() { recorder_.push({.kind = RawKind::kRegionEnd}); }

void Session::marker(const std::string& name) {
  recorder_.push({.id = recorder_.words().name(name).raw(), .kind = RawKind::kMarker});
}

}  // namespace peakline::capture
