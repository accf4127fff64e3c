// The producers that need no torch. On a virtual GPU and on a real one the same is asked by
// tests/python/vgpu/test_producer_conformance.py and tests/gpu/test_simulate_tracked.py.
#include "producer_suite.h"

#include <fmt/format.h>

#include <set>

#include <peakline/category.h>
#include <peakline/import.h>

#include "capture/allocator_watch.h"
#include "capture/assembler.h"
#include "import_support.h"

namespace peakline::testing {
namespace {

using capture::AllocatorEntry;
using capture::AllocatorWatch;
using capture::Assembler;
using capture::RawEvent;
using capture::RawKind;

constexpr std::uint8_t kCuda = 1;

// As on a real GPU: the allocator's trace, watched and assembled.
class CapturePort final : public AllocatorWatch::Port {
 public:
  explicit CapturePort(Assembler& assembler) : assembler_(assembler) {}
  capture::AllocatorCounts counts() override { return source(); }
  void push(const RawEvent& event) override { assembler_.on(event); }
  void push_alloc(const RawEvent& event, bool) override { assembler_.on(event); }
  std::function<capture::AllocatorCounts()> source;

 private:
  Assembler& assembler_;
};

void write_settings(TraceWriter& writer, const ProducedRun& run) {
  writer.info("allocator_conf", run.conf);
  if (run.limit) writer.info("allocator_limit.cuda:0", std::to_string(run.limit->raw()));
}

Produced capture_run(const ProducedRun& run) {
  Produced produced;
  TraceWriter writer(make_memory_sink(produced.recording), {{"torch", "2.13.0"}});
  writer.device({"cpu", "", Bytes{}});
  writer.device({"cuda:0", "", Bytes{}});
  writer.thread("main");
  Assembler assembler(writer, 0);
  CapturePort port(assembler);
  AllocatorWatch watch;
  LimitedAllocator allocator(run, [&](AllocatorEntry entry) {
    entry.device = kCuda;
    watch.on(entry, port);
  });
  port.source = [&] { return allocator.counts(); };
  watch.start({}, run.conf.find("round") == std::string::npos);
  allocator.run(run);
  watch.finish(port);
  assembler.finish();
  write_settings(writer, run);  // as late as a real run does
  EXPECT_TRUE(writer.close().ok());
  produced.stats = allocator.stats();
  return produced;
}

std::string_view action_name(AllocatorEntry::Action action) {
  static constexpr std::array<std::string_view, 6> kNames = {
      "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "oom"};
  return kNames[static_cast<std::size_t>(action)];
}

Produced csv_run(const ProducedRun& run) {
  Produced produced;
  std::string csv = "action,addr,size,stream\n";
  LimitedAllocator allocator(run, [&](const AllocatorEntry& entry) {
    csv += fmt::format("{},{},{},{}\n", action_name(entry.action), entry.address, entry.size,
                       entry.stream);
  });
  allocator.run(run);
  TraceWriter writer(make_memory_sink(produced.recording));
  const auto sink = make_writer_sink(writer);
  const auto source = make_memory_source(std::as_bytes(std::span(csv.data(), csv.size())));
  const Result<ImportedCounts> counts = import_csv(*source, *sink);
  EXPECT_TRUE(counts.ok()) << counts.status().message();
  EXPECT_TRUE(writer.close().ok());
  produced.stats = allocator.stats();
  return produced;
}

// Each call of the program is a line of its own, so that call stacks tell what segments were given
// back for.
class LineByLine final : public LimitedAllocator {
 public:
  using LimitedAllocator::LimitedAllocator;
  bool allocate(std::uint64_t handle, std::uint64_t size, std::uint32_t stream) override {
    ++line;
    return LimitedAllocator::allocate(handle, size, stream);
  }
  void empty_cache() override {
    ++line;
    LimitedAllocator::empty_cache();
  }
  std::int64_t line = 0;
};

Produced snapshot_run(const ProducedRun& run) {
  Produced produced;
  PickleWriter pickle;
  pickle.dict().text("segments").list().end_list();
  pickle.text("allocator_settings")
      .dict()
      .text("PYTORCH_CUDA_ALLOC_CONF")
      .text(run.conf)
      .end_dict();
  pickle.text("device_traces").list().list();
  std::int64_t time = 0;
  LineByLine* program = nullptr;
  LineByLine allocator(run, [&](const AllocatorEntry& entry) {
    pickle.entry(action_name(entry.action), static_cast<std::int64_t>(entry.address),
                 static_cast<std::int64_t>(entry.size), ++time, program->line, entry.stream);
  });
  program = &allocator;
  allocator.run(run);
  const std::string snapshot = pickle.end_list().end_list().end_dict().done();
  TraceWriter writer(make_memory_sink(produced.recording));
  const auto sink = make_writer_sink(writer);
  const Result<ImportedCounts> counts = import_snapshot(
      [&]() -> Result<std::unique_ptr<Source>> { return source_of(snapshot); }, *sink);
  EXPECT_TRUE(counts.ok()) << counts.status().message();
  EXPECT_TRUE(writer.close().ok());
  produced.stats = allocator.stats();
  return produced;
}

const Producer kCapture{"capture", capture_run};
const Producer kCsv{.name = "csv",
                    .produce = csv_run,
                    .keeps_conf = false,
                    .keeps_limit = false,
                    .keeps_retries = false};
const Producer kSnapshot{
    .name = "snapshot", .produce = snapshot_run, .keeps_limit = false, .tells_garbage = false};

INSTANTIATE_TEST_SUITE_P(Producers, ProducerSuite, ::testing::Values(kCapture, kCsv, kSnapshot),
                         [](const auto& producer) { return producer.param.name; });

// What the observers hand over, one of each.
std::vector<RawEvent> one_of_each() {
  std::vector<RawEvent> events;
  for (int kind = 0; kind <= static_cast<int>(RawKind::kLost); ++kind) {
    RawEvent event{
        .size = 4096, .extra = 4096, .kind = static_cast<RawKind>(kind), .device = kCuda};
    event.id = event.kind == RawKind::kLost ? 0 : 1;
    event.address = 0x1000 * static_cast<std::uint64_t>(kind + 1);
    const auto is = [&](RawKind a) { return event.kind == a; };
    if (is(RawKind::kFree) || is(RawKind::kLabel)) event.address = 0x1000 * 3;  // the kAlloc
    if (is(RawKind::kFreeWaits) || is(RawKind::kFreeCompleted)) event.address = 0x1000 * 3;
    if (is(RawKind::kSureness)) event.address = 0x1000 * 4;  // the kAllocEstimate
    if (is(RawKind::kResize)) event.address = 0x1000 * 4, event.size = 8192;
    events.push_back(event);
  }
  return events;
}

TEST(Producers, EveryKindOfEventIsWrittenByOne) {
  std::vector<std::byte> bytes;
  {
    TraceWriter writer(make_memory_sink(bytes));
    writer.device({"cpu", "", Bytes{}});
    writer.device({"cuda:0", "", Bytes{}});
    writer.thread("main");
    writer.module("Net", "Net", ModuleId{});
    writer.op("aten::mm");
    writer.name("a name");
    Assembler assembler(writer, 0);
    const std::vector<RawEvent> events = one_of_each();
    // A label is for a block that is alive, so the free of it comes last.
    for (const RawEvent& event : events) {
      if (event.kind == RawKind::kLabel) assembler.on(event);
    }
    for (const RawEvent& event : events) {
      if (event.kind == RawKind::kFree) {
        RawEvent label = event;
        label.kind = RawKind::kLabel;
        assembler.on(label);
      }
      assembler.on(event);
    }
    assembler.finish();
    ASSERT_TRUE(writer.close().ok());
  }
  std::set<std::size_t> kinds;
  Result<TraceReader> reader = TraceReader::open(make_memory_source(std::span(bytes)));
  ASSERT_TRUE(reader.ok());
  for (;;) {
    const Result<std::span<const Event>> events = reader->next();
    ASSERT_TRUE(events.ok());
    if (events->empty()) break;
    for (const Event& event : *events) kinds.insert(event.body.index());
  }
  for (std::size_t kind = 0; kind < std::variant_size_v<EventBody>; ++kind) {
    EXPECT_TRUE(kinds.contains(kind)) << "nobody writes events of kind " << kind;
  }
}

}  // namespace
}  // namespace peakline::testing
