// The virtual GPU's clock, told by everybody who runs something on it.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <mutex>
#include <vector>

#include <peakline/clock.h>

namespace peakline::vgpu {

// Thread-safe. Where it is off, nothing counts and every answer is the host's own time.
class GpuClock {
 public:
  GpuClock(const DeviceProfile& profile, bool on)
      : profile_(profile), on_(on), clock_(profile.time) {}

  [[nodiscard]] bool on() const noexcept { return on_; }

  // An op on the device's current stream, called by the program or by autograd.
  void op(int device, const OpTime& time);
  void copy_from_host(int device, double bytes, bool pinned, bool waits);
  void copy_to_host(int device, double bytes, bool pinned, bool waits);
  // The host reads a value, and waits for it.
  void read_value(int device);

  // A collective starts after what its stream has; the stream waits for it now, or with join().
  void collective(int device, CollectiveKind kind, double bytes, int ranks, bool async);
  void join(int device);
  void set_per_node(int gpus);

  // A CUDA graph: work on streams that are captured is issued once, kept, and done at each replay, one
  // after another in the current stream. `graph` is the caller's number for it.
  void capture(std::uint64_t graph, int device, std::int64_t stream);
  void end_capture(std::uint64_t graph);
  void replay(std::uint64_t graph, int device);
  void forget_graph(std::uint64_t graph);

  // When an event that is recorded now happens, in microseconds.
  [[nodiscard]] double record(int device, std::int64_t stream);
  void wait(int device, std::int64_t stream, double when);
  void synchronize(double when);
  void synchronize_stream(int device, std::int64_t stream);
  void synchronize_device(int device);

  [[nodiscard]] Timing timing();
  void keep_spans(std::size_t most);
  [[nodiscard]] std::vector<Clock::Span> spans();

 private:
  const DeviceProfile profile_;
  const bool on_;
  struct Work {
    OpTime time;
    Clock::Engine engine;
  };

  // This thread has run Python since it was last asked.
  void catch_up();
  // Kept for the graph that captures the stream. False where none does.
  bool keep(Clock::Stream stream, const OpTime& time, Clock::Engine engine);
  void join_network(Clock::Stream stream) { clock_.wait(stream, clock_.record(network(stream))); }
  static Clock::Stream network(Clock::Stream stream);
  void start_collective(Clock::Stream stream, const OpTime& time);

  std::mutex mutex_;
  Clock clock_;
  int per_node_ = 8;
  std::map<Clock::Stream, std::uint64_t> captured_;  // streams that are, and by which graph
  std::map<std::uint64_t, std::vector<Work>> graphs_;
};

}  // namespace peakline::vgpu
