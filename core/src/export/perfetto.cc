// A recording as a Perfetto trace: counters by category, slices of steps, phases, modules and ops.
#include <fmt/format.h>

#include <array>
#include <map>
#include <optional>
#include <utility>

#include <peakline/export.h>
#include <peakline/replay.h>

#include "base/utf8.h"
#include "export/category_book.h"
#include "export/perfetto_streams.h"
#include "export/perfetto_writer.h"
#include "export/ranks.h"
#include "ledger/era_name.h"
#include "report/categories.h"

namespace peakline {
namespace {

// Stretches and marks of the program. Every kind has a track of its own, since an end closes what was
// begun last on its track.
class Spans {
 public:
  Spans(PerfettoWriter& writer, TrackId process) : writer_(writer), process_(process) {}

  void op_begin(const Now& now, OpId op) {
    TrackId& track = thread_track(ops_, now, "ops");
    ++open_ops_[track];
    writer_.slice_begin(track, now.time, utf8(now.dictionary.op(op)));
  }
  void op_end(const Now& now) {
    TrackId& track = thread_track(ops_, now, "ops");
    if (open_ops_[track] == 0) return;
    --open_ops_[track];
    writer_.slice_end(track, now.time);
  }
  void module_enter(const Now& now, const ModuleFrame& frame) {
    std::string name(now.dictionary.module(frame.module).path);
    if (frame.pass == ModulePass::kBackward) name += " (backward)";
    if (frame.pass == ModulePass::kRecompute) name += " (recompute)";
    writer_.slice_begin(thread_track(modules_, now, "modules"), now.time, utf8(name));
  }
  void module_leave(const Now& now) {
    writer_.slice_end(thread_track(modules_, now, "modules"), now.time);
  }
  // The step that an event belongs to begins with it.
  void in_step(TimeNs time) {
    if (step_is_open_) return;
    step_is_open_ = true;
    step_began_ = time;
    writer_.slice_begin(track_of(steps_, "steps"), time, fmt::format("step {}", steps_ended_ + 1));
  }
  void step_end(TimeNs time) {
    if (!std::exchange(step_is_open_, false)) return;
    ++steps_ended_;
    writer_.slice_end(track_of(steps_, "steps"), time);
  }
  // An optimizer's step is over, not just the recording.
  void whole_step_end(TimeNs time) {
    if (step_is_open_) last_whole_step_ = step_began_;
    step_end(time);
  }
  [[nodiscard]] std::optional<TimeNs> last_whole_step() const { return last_whole_step_; }
  void other(const Now& now, const Event& event) {
    const Dictionary& words = now.dictionary;
    if (const auto* begin = std::get_if<PhaseBegin>(&event.body)) {
      ++open_phases_[index(begin->phase)];
      writer_.slice_begin(phase_track(begin->phase), now.time, phase_name(begin->phase));
    } else if (const auto* end = std::get_if<PhaseEnd>(&event.body)) {
      if (open_phases_[index(end->phase)] == 0) return;
      --open_phases_[index(end->phase)];
      writer_.slice_end(phase_track(end->phase), now.time);
    } else if (const auto* marker = std::get_if<Marker>(&event.body)) {
      mark(now.time, words.name(marker->name));
    } else if (const auto* call = std::get_if<Collective>(&event.body)) {
      mark(now.time, fmt::format("{} ({})", words.name(call->name), format_size(call->bytes)));
    } else if (const auto* oom = std::get_if<OutOfMemory>(&event.body)) {
      const bool failed = oom->kind == OutOfMemory::Kind::kFailed;
      mark(now.time, fmt::format("{}: {} asked for", failed ? "out of memory" : "tried again",
                                 format_size(oom->requested)));
    }
  }

 private:
  using Tracks = std::map<std::uint32_t, TrackId>;  // by thread
  static std::size_t index(Phase phase) { return static_cast<std::size_t>(phase); }

  TrackId& thread_track(Tracks& tracks, const Now& now, std::string_view what) {
    const auto [found, is_new] = tracks.try_emplace(now.thread.raw(), 0);
    if (is_new) {
      const std::string name = fmt::format("{} {}", now.dictionary.thread(now.thread), what);
      found->second = writer_.track(process_, utf8(name));
    }
    return found->second;
  }
  TrackId track_of(std::optional<TrackId>& track, std::string_view name) {
    if (!track) track = writer_.track(process_, name);
    return *track;
  }
  TrackId phase_track(Phase phase) { return track_of(phases_[index(phase)], phase_name(phase)); }
  void mark(TimeNs time, std::string_view name) {
    writer_.mark(track_of(marks_, "marks"), time, utf8(name));
  }
  std::string_view utf8(std::string_view text) { return valid_utf8(text, scratch_); }

  PerfettoWriter& writer_;
  TrackId process_;
  Tracks ops_;
  Tracks modules_;
  std::map<TrackId, std::uint64_t> open_ops_;
  std::optional<TrackId> steps_;
  std::optional<TrackId> marks_;
  std::array<std::optional<TrackId>, 3> phases_;
  std::array<std::uint64_t, 3> open_phases_{};
  std::uint64_t steps_ended_ = 0;
  bool step_is_open_ = false;
  TimeNs step_began_;
  std::optional<TimeNs> last_whole_step_;  // when it began
  std::string scratch_;
};

// What each device holds, in all and by category.
class Counters {
 public:
  Counters(PerfettoWriter& writer, TrackId process, const CategoryBook& book)
      : writer_(writer), process_(process), book_(book) {}

  void alloc(const Now& now, const Block& block) {
    change(now, block, book_.at(allocations_++), block.bytes);
  }
  void free(const Now& now, const Block& block, CategoryId category) {
    change(now, block, category, Bytes{} - block.bytes);
  }
  void reserved(const Now& now, DeviceId device) {
    writer_.counter(track(now, device, kReserved, "reserved"), now.time,
                    now.ledger.totals(device).reserved);
  }

 private:
  static constexpr std::uint32_t kAllocated = 1000;  // above every category
  static constexpr std::uint32_t kReserved = 1001;
  using Key = std::pair<std::uint32_t, std::uint32_t>;  // device, and category or one of these

  void change(const Now& now, const Block& block, CategoryId category, Bytes bytes) {
    writer_.counter(track(now, block.device, kAllocated, "allocated"), now.time,
                    now.ledger.totals(block.device).allocated);
    const Dictionary& words = now.dictionary;
    const CategoryId top = words.top_level(known_category(words, category));
    Bytes& held = held_[{block.device.raw(), top.raw()}];
    held += bytes;
    writer_.counter(track(now, block.device, top.raw(), words.category(top).name), now.time, held);
  }
  TrackId track(const Now& now, DeviceId device, std::uint32_t what, std::string_view name) {
    const auto [found, is_new] = tracks_.try_emplace(Key{device.raw(), what}, 0);
    if (is_new) {
      const std::string title = fmt::format("{} {}", now.dictionary.device(device).name, name);
      found->second = writer_.counter_track(process_, valid_utf8(title, scratch_));
    }
    return found->second;
  }

  PerfettoWriter& writer_;
  TrackId process_;
  const CategoryBook& book_;
  std::size_t allocations_ = 0;
  std::map<Key, TrackId> tracks_;
  std::map<Key, Bytes> held_;
  std::string scratch_;
};

class PerfettoPass : public Pass {
 public:
  PerfettoPass(Spans& spans, Counters& counters) : spans_(spans), counters_(counters) {}

  void on_alloc(const Now& now, const Block& block) override { counters_.alloc(now, block); }
  void on_free(const Now& now, const Block& block, CategoryId category) override {
    counters_.free(now, block, category);
  }
  void on_reserved(const Now& now, DeviceId device) override { counters_.reserved(now, device); }
  void on_module_enter(const Now& now, const ModuleFrame& frame) override {
    spans_.module_enter(now, frame);
  }
  void on_module_leave(const Now& now, const ModuleFrame&) override { spans_.module_leave(now); }
  void on_step_end(const Now& now) override { spans_.whole_step_end(now.time); }
  void on_other(const Now& now, const Event& event) override { spans_.other(now, event); }
  void finish(const Now& now) override { spans_.step_end(now.time); }

 private:
  Spans& spans_;
  Counters& counters_;
};

Status write_rank(TraceReader& reader, const RankReader::Rank& rank, const CategoryBook& book,
                  PerfettoWriter& writer) {
  const TrackId process =
      writer.begin_process(rank.rank, fmt::format("peakline rank {}", rank.rank));
  Spans spans(writer, process);
  Counters counters(writer, process, book);
  PerfettoPass pass(spans, counters);
  Replay replay(reader.dictionary());
  replay.add(pass);
  while (writer.status().ok()) {
    const Result<std::span<const Event>> events = reader.next();
    if (!events.ok()) return events.status();
    if (events->empty()) break;
    for (const Event& event : *events) {
      spans.in_step(event.time);
      replay.on(event);
      // Passes are not told of ops.
      const Now now{replay.event_count(), event.time,       event.thread,
                    replay.ledger(),      replay.context(), reader.dictionary()};
      if (const auto* begin = std::get_if<OpBegin>(&event.body)) {
        spans.op_begin(now, begin->op);
      } else if (std::holds_alternative<OpEnd>(event.body)) {
        spans.op_end(now);
      }
    }
  }
  replay.finish();
  const auto streams = rank.summary.info.find("streams");
  if (streams != rank.summary.info.end() && spans.last_whole_step()) {
    write_streams(writer, process, streams->second, *spans.last_whole_step());
  }
  return writer.status();
}

}  // namespace

Result<std::vector<std::string>> export_perfetto(std::span<const ExportInput> runs,
                                                 std::unique_ptr<Sink> sink) {
  PerfettoWriter writer(std::move(sink));
  RankReader ranks(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    CategoryBook book;
    const Result<RankReader::Rank> rank = ranks.read(i, {&book});
    if (!rank.ok()) return rank.status();
    Result<TraceReader> reader = open_reader(runs[i].open);
    if (!reader.ok()) return reader.status();
    PEAKLINE_RETURN_IF_ERROR(write_rank(*reader, *rank, book, writer));
  }
  PEAKLINE_RETURN_IF_ERROR(writer.finish());
  return std::move(ranks.warnings());
}

}  // namespace peakline
