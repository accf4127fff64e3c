// The simulated allocator on real traces, and how its cost grows with the number of blocks.
//   build/release/benchmarks/allocator_bench
#include <benchmark/benchmark.h>

#include <random>
#include <unordered_map>

#include <peakline/allocator.h>

#include "allocator_truth.h"

namespace {

using namespace peakline;

// A trace with addresses replaced by numbers, so that the replay measures the allocator only.
struct Step {
  bool is_alloc;
  std::uint32_t block;
  Bytes bytes;
  StreamId stream;
};

struct Trace {
  std::vector<Step> steps;
  std::uint32_t blocks = 0;
  std::size_t pairs = 0;
};

Trace load(const std::string& name) {
  Trace trace;
  std::unordered_map<std::uint64_t, std::uint32_t> live;
  for (const auto& row : testing::read_rows("allocator/trace." + name + ".csv.zst")) {
    if (row.action == "alloc") {
      live[row.address] = trace.blocks;
      trace.steps.push_back({true, trace.blocks++, Bytes(row.size), StreamId(row.stream)});
    } else if (row.action == "free_requested") {
      trace.steps.push_back({false, live.at(row.address), Bytes{}, StreamId{}});
      ++trace.pairs;
    }
  }
  // What is left at the end goes back, so that the trace can run again and again.
  std::vector<bool> freed(trace.blocks, false);
  for (const Step& step : trace.steps) {
    if (!step.is_alloc) freed[step.block] = true;
  }
  for (std::uint32_t i = 0; i < trace.blocks; ++i) {
    if (!freed[i]) trace.steps.push_back({false, i, Bytes{}, StreamId{}});
  }
  trace.pairs = trace.blocks;
  return trace;
}

void replay_trace(benchmark::State& state, const std::string& name, const std::string& conf) {
  const Trace trace = load(name);
  const auto device = make_driver_model();
  CachingAllocator allocator(*AllocatorConfig::parse(conf), *device);
  std::vector<Address> addresses(trace.blocks);
  for (auto _ : state) {
    for (const Step& step : trace.steps) {
      if (step.is_alloc) {
        addresses[step.block] = allocator.allocate(step.bytes, step.stream).address;
      } else {
        allocator.free(addresses[step.block]);
      }
    }
  }
  state.counters["pairs"] =
      benchmark::Counter(static_cast<double>(trace.pairs) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}

// Random frees and allocations around a constant number of live blocks.
void live_blocks(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  const auto device = make_driver_model();
  CachingAllocator allocator(AllocatorConfig{}, *device);
  std::mt19937_64 random(1);
  const auto any_size = [&] {
    return Bytes(static_cast<std::int64_t>(random() % (random() % 8 == 0 ? 4 << 20 : 64 << 10)) +
                 1);
  };
  std::vector<Address> live;
  for (std::size_t i = 0; i < count; ++i) live.push_back(allocator.allocate(any_size()).address);
  for (auto _ : state) {
    Address& block = live[random() % count];
    allocator.free(block);
    block = allocator.allocate(any_size()).address;
  }
  state.counters["pairs"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(live_blocks)->RangeMultiplier(10)->Range(100, 1'000'000);

const int registered = [] {
  for (const char* name : {"gpt2_fp32", "llama1b_ac", "unet", "fsdp8_llama160m"}) {
    benchmark::RegisterBenchmark((std::string("trace/") + name).c_str(),
                                 [name](auto& state) { replay_trace(state, name, ""); });
  }
  for (const char* name : {"gpt2_fp32", "fsdp8_llama160m"}) {
    benchmark::RegisterBenchmark(
        (std::string("trace/") + name + "/expandable").c_str(),
        [name](auto& state) { replay_trace(state, name, "expandable_segments:True"); });
  }
  return 0;
}();

}  // namespace
