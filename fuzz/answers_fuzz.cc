// Any recording through every answer: summary, text, tables, report, diff, exports, simulation. The bytes are
// a whole file, or the payload of a chunk that gets a right header (see trace_reader_fuzz.cc).
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <peakline/diff.h>
#include <peakline/export.h>
#include <peakline/report.h>
#include <peakline/show_text.h>
#include <peakline/simulate.h>
#include <peakline/simulate_text.h>
#include <peakline/size_bound.h>
#include <peakline/summary.h>

#include "trace_bytes.h"

namespace {

using namespace peakline;
using namespace peakline::testing;

Bytestring as_file(std::uint8_t how, std::span<const std::uint8_t> bytes) {
  Bytestring file;
  if (how != 0) return file_header() + chunk(how, bytes);
  append(file, bytes);
  return file;
}

void require(bool truth) {
  if (!truth) std::abort();
}

// What a summary says must add up, whatever the file said.
void check(const Summary& summary) {
  for (const DeviceSummary& device : summary.devices) {
    Bytes sum;
    for (const NamedBytes& row : device.by_category) sum += row.bytes;
    require(sum == device.peak_allocated);
    require(device.peak_allocated >= Bytes{});
  }
}

std::vector<std::byte> discarded;

void export_all(const SourceOpener& open) {
  const std::vector<ExportInput> runs{{"fuzz.peak", open}};
  const auto sink = [](std::string_view) -> Result<std::unique_ptr<Sink>> {
    discarded.clear();
    return make_memory_sink(discarded);
  };
  const auto tables = choose_tables({});
  const auto csv = make_csv_writer(sink);
  static_cast<void>(export_tables(runs, *tables, *csv));
  static_cast<void>(export_perfetto(runs, make_memory_sink(discarded)));
  static_cast<void>(export_snapshot(runs, make_memory_sink(discarded)));
}

// The same events within a size: the peaks stay what they are.
void check_bounded(const Bytestring& file, const Summary& whole) {
  Result<TraceReader> reader = TraceReader::open(make_memory_source(file));
  if (!reader.ok()) return;
  std::vector<std::byte> bounded;
  {
    WriterOptions options;
    options.filter = make_size_bound(Bytes(static_cast<std::int64_t>(file.size())));
    options.chunk_bytes = 256;
    TraceWriter writer(make_memory_sink(bounded), {}, options);
    for (;;) {
      const auto events = reader->next();
      if (!events.ok() || events->empty()) break;
      for (const Event& event : *events) writer.write(event);
    }
  }
  Result<TraceReader> again = TraceReader::open(make_memory_source(bounded));
  if (!again.ok()) return;
  const Result<Summary> summed = summarize(*again);
  require(summed.ok());
  require(summed->devices.size() <= whole.devices.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Bytestring file = as_file(data[0] % 4, {data + 1, size - 1});
  const SourceOpener open = [&]() -> Result<std::unique_ptr<Source>> {
    return make_memory_source(file);
  };
  Result<TraceReader> reader = TraceReader::open(make_memory_source(file));
  if (!reader.ok()) return 0;
  const Result<Summary> summary = summarize(*reader);
  if (!summary.ok()) return 0;
  check(*summary);
  static_cast<void>(show_text("fuzz", *summary, {}, Paint(false)));
  static_cast<void>(summary_to_json(*summary));
  const RunFacts facts = facts_of(*summary);
  static_cast<void>(diff_to_json(diff_runs(facts, facts)));
  const Result<Report> report = build_report(open);
  if (report.ok()) static_cast<void>(report_to_json(*report, "fuzz"));
  const Result<SimulationResult> simulated = simulate(open, {});
  if (simulated.ok()) static_cast<void>(simulation_text("fuzz", *simulated, Paint(false)));
  export_all(open);
  check_bounded(file, *summary);
  return 0;
}
