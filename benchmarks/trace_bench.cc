// How fast recordings are written and read, and how large they are.
#include <benchmark/benchmark.h>

#include <vector>

#include <peakline/trace.h>

#include "synthetic_run.h"

namespace peakline {
namespace {

constexpr std::size_t kEvents = 2'000'000;

// Counts bytes and keeps none: the disk is not what is measured.
class CountingSink final : public Sink {
 public:
  explicit CountingSink(std::size_t& bytes) : bytes_(bytes) {}
  Status write(std::span<const std::byte> bytes) override {
    bytes_ += bytes.size();
    return {};
  }
  Status flush() override { return {}; }

 private:
  std::size_t& bytes_;
};

struct Workload {
  testing::SyntheticRun run;
  std::vector<Event> events;
};

const Workload& workload() {
  static const Workload kWorkload = [] {
    Workload out;
    while (out.events.size() < kEvents) {
      const std::vector<Event>& step = out.run.next_step();
      out.events.insert(out.events.end(), step.begin(), step.end());
    }
    return out;
  }();
  return kWorkload;
}

Status write_all(std::unique_ptr<Sink> sink, const WriterOptions& options) {
  TraceWriter writer(std::move(sink), {}, options);
  workload().run.define_words(writer);
  for (const Event& event : workload().events) writer.write(event);
  return writer.close();
}

void report(benchmark::State& state, std::size_t bytes) {
  const auto events = static_cast<double>(workload().events.size());
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(events));
  state.counters["bytes_per_event"] = static_cast<double>(bytes) / events;
}

void BM_WriteTrace(benchmark::State& state) {
  workload();
  std::size_t bytes = 0;
  for (auto _ : state) {
    bytes = 0;
    WriterOptions options;
    options.compression_level = static_cast<int>(state.range(0));
    options.chunk_bytes = static_cast<std::size_t>(state.range(1)) << 10;
    const Status status = write_all(std::make_unique<CountingSink>(bytes), options);
    if (!status.ok()) state.SkipWithError(status.message().c_str());
  }
  report(state, bytes);
}
BENCHMARK(BM_WriteTrace)
    ->ArgNames({"level", "chunk_kib"})
    ->Args({1, 256})
    ->Args({-5, 256})
    ->Args({3, 256})
    ->Args({1, 64})
    ->Args({1, 1024})
    ->Unit(benchmark::kMillisecond);

void BM_ReadTrace(benchmark::State& state) {
  std::vector<std::byte> bytes;
  const Status written = write_all(make_memory_sink(bytes), {});
  if (!written.ok()) state.SkipWithError(written.message().c_str());
  for (auto _ : state) {
    Result<TraceReader> reader = TraceReader::open(make_memory_source(bytes));
    std::size_t events = 0;
    while (reader.ok()) {
      const Result<std::span<const Event>> batch = reader->next();
      if (!batch.ok() || batch->empty()) break;
      benchmark::DoNotOptimize(batch->data());
      events += batch->size();
    }
    if (events != workload().events.size()) state.SkipWithError("events are missing");
  }
  report(state, bytes.size());
}
BENCHMARK(BM_ReadTrace)->Unit(benchmark::kMillisecond);

void BM_SyntheticRun(benchmark::State& state) {
  testing::SyntheticRun run;
  std::int64_t events = 0;
  for (auto _ : state) events += static_cast<std::int64_t>(run.next_step().size());
  state.SetItemsProcessed(events);
}
BENCHMARK(BM_SyntheticRun);

}  // namespace
}  // namespace peakline
