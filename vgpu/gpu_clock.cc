#include "vgpu/gpu_clock.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <chrono>

#include "vgpu/host_memory.h"
#include "vgpu/host_work.h"
#include "vgpu/python_calls.h"
#include "vgpu/streams.h"

namespace peakline::vgpu {
namespace {

// NCCL's own stream: no program has one of this number.
constexpr std::int64_t kNetworkStream = -1;

Clock::Stream current(int device) { return {device, ThisThread::stream(device)}; }

// Autograd calls with gradients off; with them on, backward computes a checkpointed forward again.
Issue issuer() {
  if (c10::GradMode::is_enabled()) return Issue::kForward;
  return torch::autograd::get_current_graph_task_id() >= 0 ? Issue::kBackward : Issue::kPlain;
}

double host_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void GpuClock::catch_up() {
  if (const std::uint64_t calls = PythonCalls::take(); calls > 0) clock_.python(calls);
  if (const double us = HostWork::take(); us > 0) clock_.host(us);
}

Clock::Stream GpuClock::network(Clock::Stream stream) { return {stream.device, kNetworkStream}; }

bool GpuClock::keep(Clock::Stream stream, const OpTime& time, Clock::Engine engine) {
  if (captured_.empty()) return false;
  const auto found = captured_.find(stream);
  if (found == captured_.end()) return false;
  graphs_[found->second].push_back({time, engine});
  return true;
}

void GpuClock::op(int device, const OpTime& time) {
  if (!on_) return;
  if (device == kHost) return HostWork::add(time.host_us);
  const std::lock_guard guard(mutex_);
  catch_up();
  const Clock::Stream stream = current(device);
  if (keep(stream, time, Clock::Engine::kKernels)) return clock_.issue(time, issuer());
  clock_.op(stream, time, issuer());
}

void GpuClock::copy_from_host(int device, double bytes, bool pinned, bool waits) {
  if (!on_) return;
  const std::lock_guard guard(mutex_);
  catch_up();
  const Clock::Stream stream = current(device);
  clock_.host(profile_.time.host_op_us);
  const OpTime time = host_copy_time(bytes, pinned, profile_);
  if (keep(stream, time, Clock::Engine::kCopyIn)) return;
  clock_.work(stream, time, Clock::Engine::kCopyIn);
  // Memory that is not pinned is read before the call returns.
  if (waits || !pinned) clock_.synchronize_stream(stream);
}

void GpuClock::copy_to_host(int device, double bytes, bool pinned, bool waits) {
  if (!on_) return;
  const std::lock_guard guard(mutex_);
  catch_up();
  const Clock::Stream stream = current(device);
  clock_.host(profile_.time.host_op_us);
  const OpTime time = host_copy_time(bytes, pinned, profile_);
  if (keep(stream, time, Clock::Engine::kCopyOut)) return;
  clock_.work(stream, time, Clock::Engine::kCopyOut);
  if (waits || !pinned) clock_.synchronize_stream(stream);
}

void GpuClock::read_value(int device) { copy_to_host(device, 8, true, true); }

void GpuClock::collective(int device, CollectiveKind kind, double bytes, int ranks, bool async) {
  if (!on_) return;
  const std::lock_guard guard(mutex_);
  catch_up();
  const Clock::Stream stream = current(device);
  clock_.host(profile_.time.host_op_us);
  const OpTime time = collective_time(kind, bytes, ranks, per_node_, profile_);
  if (keep(stream, time, Clock::Engine::kNetwork)) return;
  start_collective(stream, time);
  if (!async) join_network(stream);
}

void GpuClock::start_collective(Clock::Stream stream, const OpTime& time) {
  clock_.wait(network(stream), clock_.record(stream));
  clock_.work(network(stream), time, Clock::Engine::kNetwork);
}

void GpuClock::join(int device) {
  if (!on_) return;
  const std::lock_guard guard(mutex_);
  catch_up();
  join_network(current(device));
}

void GpuClock::capture(std::uint64_t graph, int device, std::int64_t stream) {
  if (!on_) return;
  const std::lock_guard guard(mutex_);
  captured_[{device, stream}] = graph;
}

void GpuClock::end_capture(std::uint64_t graph) {
  const std::lock_guard guard(mutex_);
  std::erase_if(captured_, [graph](const auto& entry) { return entry.second == graph; });
}

void GpuClock::replay(std::uint64_t graph, int device) {
  if (!on_) return;
  const std::lock_guard guard(mutex_);
  catch_up();
  const Clock::Stream stream = current(device);
  clock_.host(profile_.time.host_op_us);
  for (const Work& work : graphs_[graph]) {
    if (work.engine == Clock::Engine::kNetwork) {
      start_collective(stream, work.time);
      join_network(stream);
    } else if (work.engine != Clock::Engine::kKernels || work.time.kernels > 0) {
      clock_.work(stream, work.time, work.engine);
    }
  }
}

void GpuClock::forget_graph(std::uint64_t graph) {
  const std::lock_guard guard(mutex_);
  graphs_.erase(graph);
}

void GpuClock::set_per_node(int gpus) {
  const std::lock_guard guard(mutex_);
  per_node_ = std::max(1, gpus);
}

double GpuClock::record(int device, std::int64_t stream) {
  if (!on_) return host_us();
  const std::lock_guard guard(mutex_);
  catch_up();
  return clock_.record({device, stream});
}

void GpuClock::wait(int device, std::int64_t stream, double when) {
  if (!on_) return;
  const std::lock_guard guard(mutex_);
  catch_up();
  clock_.wait({device, stream}, when);
}

void GpuClock::synchronize(double when) {
  if (!on_) return;
  const std::lock_guard guard(mutex_);
  catch_up();
  clock_.synchronize(when);
}

void GpuClock::synchronize_stream(int device, std::int64_t stream) {
  if (!on_) return;
  const std::lock_guard guard(mutex_);
  catch_up();
  clock_.synchronize_stream({device, stream});
}

void GpuClock::synchronize_device(int device) {
  if (!on_) return;
  const std::lock_guard guard(mutex_);
  catch_up();
  clock_.synchronize_device(device);
}

Timing GpuClock::timing() {
  const std::lock_guard guard(mutex_);
  if (on_) catch_up();
  return clock_.timing();
}

void GpuClock::keep_spans(std::size_t most) {
  const std::lock_guard guard(mutex_);
  clock_.keep_spans(most);
}

std::vector<Clock::Span> GpuClock::spans() {
  const std::lock_guard guard(mutex_);
  return clock_.spans();
}

}  // namespace peakline::vgpu
