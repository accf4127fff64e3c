// How fast events are replayed: through the ledger alone, and through every question of `show` at
// once.
#include <benchmark/benchmark.h>

#include <vector>

#include <peakline/replay.h>
#include <peakline/summary.h>

#include "synthetic_run.h"

namespace peakline {
namespace {

constexpr std::size_t kEvents = 2'000'000;

struct Recording {
  std::vector<std::byte> bytes;
  std::int64_t events = 0;
};

const Recording& recording() {
  static const Recording kRecording = [] {
    Recording out;
    testing::SyntheticRun run;
    TraceWriter writer(make_memory_sink(out.bytes));
    run.define_words(writer);
    while (writer.event_count() < kEvents) {
      for (const Event& event : run.next_step()) writer.write(event);
    }
    out.events = static_cast<std::int64_t>(writer.event_count());
    if (!writer.close().ok()) out.bytes.clear();
    return out;
  }();
  return kRecording;
}

// From bytes: decompression, decoding, context and ledger.
void BM_ReplayLedger(benchmark::State& state) {
  for (auto _ : state) {
    Result<TraceReader> reader = TraceReader::open(make_memory_source(recording().bytes));
    if (!reader.ok() || !replay(*reader, {}).ok()) state.SkipWithError("the recording is bad");
  }
  state.SetItemsProcessed(state.iterations() * recording().events);
}
BENCHMARK(BM_ReplayLedger)->Unit(benchmark::kMillisecond);

// From bytes: everything that `peakline show` answers.
void BM_Summarize(benchmark::State& state) {
  for (auto _ : state) {
    Result<TraceReader> reader = TraceReader::open(make_memory_source(recording().bytes));
    if (!reader.ok() || !summarize(*reader).ok()) state.SkipWithError("the recording is bad");
  }
  state.SetItemsProcessed(state.iterations() * recording().events);
}
BENCHMARK(BM_Summarize)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace peakline
