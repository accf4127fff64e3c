// Time on virtual GPUs: streams are queues, events and waits order them, and one host issues it all.
//
//   host    ──op──op──op──────── synchronize ┐
//   stream 0    └─kernel─┘└─kernel─┘──record─┤   a kernel starts when it was issued, the queue before
//   stream 7        └─ wait ───────└─kernel──┘   it is done, and the events that it waits for happened
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <peakline/cost.h>

namespace peakline {

// What a stretch of time was spent on. Times in milliseconds.
struct Timing {
  double elapsed_ms = 0;
  double host_ms = 0;            // the host issued work; it waited in the rest
  double gpu_busy_ms = 0;        // a kernel, a copy or a collective ran, gaps between kernels not
  double network_ms = 0;         // a collective ran
  double hidden_network_ms = 0;  // and a kernel beside it
  double compute_ms = 0;         // in kernels that arithmetic bounds
  double memory_ms = 0;          // in kernels that memory bounds
  double latency_ms = 0;         // in kernels too small for either
  double guessed_ms = 0;         // in kernels that no rule knows
  double flops = 0;
  std::uint64_t kernels = 0;
  std::uint64_t ops = 0;

  // The largest part of the time: "host" (the GPU waits for work, or its kernels are too small),
  // "compute", "memory" or "network". Empty when nothing has run.
  [[nodiscard]] std::string_view bound_by() const noexcept;
};

Timing operator-(const Timing& later, const Timing& earlier) noexcept;

// Who calls an op.
enum class Issue : std::uint8_t {
  kForward,   // the program, and autograd records it
  kPlain,     // the program, and nothing is recorded
  kBackward,  // autograd
};

// The clock of one process with its GPUs. Not thread-safe.
class Clock {
 public:
  struct Stream {
    int device = 0;
    std::int64_t id = 0;
    auto operator<=>(const Stream&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  enum class Engine : std::uint8_t { kKernels, kCopyIn, kCopyOut, kNetwork };

  explicit Clock(const TimeRates& rates) : rates_(rates) {}

  // The host issues an op, and its kernels follow in the stream.
  void op(Stream stream, const OpTime& time, Issue issue);
  // The same without the kernels, which run later or elsewhere.
  void issue(const OpTime& time, Issue issue);
  // Work that the host has issued already: a copy, a collective.
  void work(Stream stream, const OpTime& time, Engine engine);
  void host(double us);
  // The program called so many Python functions since it was last asked.
  void python(std::uint64_t calls) { host(static_cast<double>(calls) * rates_.host_python_us); }

  // An event recorded now happens at this time.
  [[nodiscard]] double record(Stream stream) const;
  // Nothing that is issued to the stream later starts before `when`.
  void wait(Stream stream, double when);
  // The host waits.
  void synchronize(double when);
  void synchronize_stream(Stream stream);
  void synchronize_device(int device);

  [[nodiscard]] double now_us() const noexcept { return host_; }
  // Everything that was issued is done.
  [[nodiscard]] double end_us() const;
  // Of all so far, with what is still queued done.
  [[nodiscard]] Timing timing();

  // One stretch of a stream's work, for a picture.
  struct Span {
    Stream stream;
    Engine engine;
    TimeBound bound;
    double start_us;
    double end_us;
  };
  // The last spans, up to `most` of them; kept only when asked for.
  void keep_spans(std::size_t most) { most_spans_ = most; }
  [[nodiscard]] const std::vector<Span>& spans() const noexcept { return spans_; }

 private:
  using Interval = std::pair<double, double>;
  // Intervals that may overlap, and how long at least one of them lasted.
  class Busy {
   public:
    void add(double start, double end);
    // Sums up and forgets all that lies before `until`, when nothing can start any more.
    void settle(double until);
    [[nodiscard]] double total();

   private:
    void merge();
    std::vector<Interval> open_;
    double settled_ = 0;
  };

  double place(Stream stream, const OpTime& time, Engine engine, double issued);
  [[nodiscard]] double price_us(Issue issue) const;
  [[nodiscard]] double gaps_us(const OpTime& time, Engine engine) const;
  double& end_of(Stream stream);

  const TimeRates rates_;
  double host_ = 0;
  double issuing_ = 0;
  std::map<Stream, double> ends_;
  Stream last_{-1, 0};
  double* last_end_ = nullptr;
  std::map<std::pair<int, Engine>, double> engine_free_;
  Busy kernels_;
  Busy network_;
  Busy both_;  // the two
  Busy any_;   // copies too
  Timing sums_;
  std::size_t most_spans_ = 0;
  std::vector<Span> spans_;
};

}  // namespace peakline
