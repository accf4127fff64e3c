// A recording as one of torch's memory snapshots, for memory_viz.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include <peakline/allocator_config.h>
#include <peakline/export.h>

#include "base/utf8.h"
#include "export/category_book.h"
#include "export/pickle_writer.h"
#include "export/ranks.h"
#include "export/snapshot_places.h"
#include "ledger/era_name.h"
#include "report/categories.h"
#include "report/segment_map.h"

namespace peakline {
namespace {

using Action = HistoryStep::Action;

// Stacks of a recording: the op, its module and those around it, the phase. Each is written once.
class Stacks {
 public:
  explicit Stacks(PickleWriter& out) : out_(out) {}

  // Writes the list of frames; gives the number under which to write it again.
  MemoId write(const Dictionary& words, const Block& block) {
    const Key key{block.op.raw(), block.module.raw(), block.birth.era};
    if (const auto found = stacks_.find(key); found != stacks_.end()) {
      out_.use(found->second);
      return found->second;
    }
    out_.begin_list();
    if (block.op != OpId{}) frame("op", words.op(block.op));
    for (ModuleId id = block.module; id != ModuleId{}; id = words.module(id).parent) {
      const ModuleInfo& module = words.module(id);
      frame("module",
            module.type.empty() ? module.path : fmt::format("{} ({})", module.path, module.type));
      if (module.parent.raw() >= id.raw()) break;  // a damaged recording: parents come first
    }
    frame("phase", era_name(block.birth.era));
    out_.end_list();
    const MemoId id = out_.remember();
    stacks_.emplace(key, id);
    return id;
  }
  // Words of the next recording mean other things.
  void forget() { stacks_.clear(); }

 private:
  using Key = std::tuple<std::uint32_t, std::uint32_t, Era>;

  void frame(std::string_view file, std::string_view name) {
    out_.begin_dict();
    out_.key_text("name", valid_utf8(name, scratch_));
    out_.key_text("filename", file);
    out_.key_number("line", 0);
    out_.end_dict();
  }

  PickleWriter& out_;
  std::map<Key, MemoId> stacks_;
  std::string scratch_;
};

// What a device holds at the end of its trace.
struct FinalState {
  std::map<std::uint64_t, PlacedBlock> blocks;
  std::map<std::uint64_t, PlacedSegment> segments;
  bool expandable = false;
};

class SnapshotWriter {
 public:
  SnapshotWriter(std::span<const ExportInput> runs, std::unique_ptr<Sink> sink)
      : runs_(runs), ranks_(runs), out_(std::move(sink)), stacks_(out_) {}

  Result<std::vector<std::string>> write() {
    out_.begin_dict();
    out_.text("device_traces");
    out_.begin_list();
    for (std::size_t i = 0; i < runs_.size(); ++i) PEAKLINE_RETURN_IF_ERROR(write_rank(i));
    out_.end_list();
    write_segments();
    write_settings();
    out_.text("external_annotations");
    out_.begin_list();
    out_.end_list();
    out_.end_dict();
    PEAKLINE_RETURN_IF_ERROR(out_.finish());
    return std::move(ranks_.warnings());
  }

 private:
  // Accelerators; the host where there are none.
  static std::vector<DeviceId> devices_to_write(const Dictionary& words) {
    std::vector<DeviceId> all;
    std::vector<DeviceId> accelerators;
    for (std::size_t i = 0; i < words.device_count(); ++i) {
      const DeviceId id(static_cast<std::uint8_t>(i));
      all.push_back(id);
      if (!words.device(id).name.starts_with("cpu")) accelerators.push_back(id);
    }
    return accelerators.empty() ? all : accelerators;
  }

  // The words are complete when a recording has been read.
  class Words : public Pass {
   public:
    void finish(const Now& now) override {
      devices = devices_to_write(now.dictionary);
      for (const DeviceId id : devices) names.push_back(now.dictionary.device(id).name);
    }
    std::vector<DeviceId> devices;
    std::vector<std::string> names;
  };

  Status write_rank(std::size_t index) {
    CategoryBook book;
    PlacesCheck places;
    Words words;
    const Result<RankReader::Rank> rank = ranks_.read(index, {&book, &places, &words});
    if (!rank.ok()) return rank.status();
    const RunInfo& info = rank->summary.info;
    if (const auto conf = info.find("allocator_conf"); conf != info.end()) conf_ = conf->second;
    for (std::size_t i = 0; i < words.devices.size(); ++i) {
      if (states_.size() > 254) return invalid_input("a snapshot has at most 255 devices");
      const bool has_places = places.complete(words.devices[i]);
      if (!has_places) {
        const std::string whose = runs_.size() > 1 ? fmt::format("rank {}: ", rank->rank) : "";
        ranks_.warnings().push_back(
            fmt::format("{}the recording does not say in which segments {}'s blocks lie; they are "
                        "placed by a simulated allocator",
                        whose, words.names[i]));
      }
      PEAKLINE_RETURN_IF_ERROR(write_trace(index, words.devices[i], !has_places, info, book));
    }
    return {};
  }

  Status write_trace(std::size_t index, DeviceId device, bool simulated, const RunInfo& info,
                     const CategoryBook& book) {
    Result<TraceReader> reader = open_reader(runs_[index].open);
    if (!reader.ok()) return reader.status();
    const auto conf = info.find("allocator_conf");
    const Result<AllocatorConfig> parsed =
        AllocatorConfig::parse(conf == info.end() ? "" : conf->second);
    const AllocatorConfig config = parsed.ok() ? *parsed : AllocatorConfig{};
    std::size_t allocations = 0;
    stacks_.forget();
    expandable_ = config.expandable_segments;
    PlacesPass pass(
        device, simulated ? &config : nullptr, [&] { return book.at(allocations++); },
        [this](const Now& now, const HistoryStep& step) { return tell(now, step); });
    Replay replay(reader->dictionary());
    replay.add(pass);
    out_.begin_list();
    while (out_.status().ok()) {
      const Result<std::span<const Event>> events = reader->next();
      if (!events.ok()) return events.status();
      if (events->empty()) break;
      for (const Event& event : *events) replay.on(event);
    }
    replay.finish();
    out_.end_list();
    if (pass.failed()) {
      ranks_.warnings().emplace_back("the simulated device was full: what came later is missing");
    }
    states_.push_back({pass.blocks(), pass.segments(), expandable_});
    return out_.status();
  }

  std::uint32_t tell(const Now& now, const HistoryStep& step) {
    out_.next_item();
    out_.begin_dict();
    out_.key_text("action", name_of(step.action));
    // torch says here how much the device has left; a recording does not know.
    out_.key_number(step.action == Action::kOutOfMemory ? "device_free" : "addr",
                    static_cast<std::int64_t>(step.address.raw()));
    out_.key_number("size", step.bytes.raw());
    out_.key_number("stream", step.stream.raw());
    out_.key_number("time_us", now.time.raw() / 1000);
    out_.key_text("compile_context", "N/A");
    out_.key_text("user_metadata", step.block != nullptr ? label(now, step.category) : "");
    out_.text("pool_id");
    out_.pair(0, 0);
    MemoId stack = 0;
    out_.text("frames");
    if (step.block != nullptr) {
      stack = stacks_.write(now.dictionary, *step.block);
    } else {
      out_.begin_list();
      out_.end_list();
    }
    out_.end_dict();
    return stack;
  }

  std::string label(const Now& now, CategoryId category) const {
    const Dictionary& words = now.dictionary;
    std::string scratch;
    return std::string(valid_utf8(words.category_label(known_category(words, category)), scratch));
  }

  [[nodiscard]] std::string_view name_of(Action action) const {
    switch (action) {
      case Action::kAlloc:
        return "alloc";
      case Action::kFreeRequested:
        return "free_requested";
      case Action::kFreeCompleted:
        return "free_completed";
      case Action::kSegmentAlloc:
        return expandable_ ? "segment_map" : "segment_alloc";
      case Action::kSegmentFree:
        return expandable_ ? "segment_unmap" : "segment_free";
      case Action::kOutOfMemory:
        return "oom";
    }
    return "";
  }

  void write_segments() {
    out_.text("segments");
    out_.begin_list();
    for (std::size_t device = 0; device < states_.size(); ++device) {
      const FinalState& state = states_[device];
      for (auto at = state.segments.begin(); at != state.segments.end();) {
        const std::uint64_t begin = at->first;
        std::uint64_t end = begin + static_cast<std::uint64_t>(at->second.bytes.raw());
        const StreamId stream = at->second.stream;
        ++at;
        // Parts of an expandable segment lie side by side, and blocks cross from one to the next.
        while (state.expandable && at != state.segments.end() && at->first == end &&
               at->second.stream == stream) {
          end += static_cast<std::uint64_t>(at->second.bytes.raw());
          ++at;
        }
        write_segment(device, state, begin, end, stream);
      }
    }
    out_.end_list();
  }

  void write_segment(std::size_t device, const FinalState& state, std::uint64_t begin,
                     std::uint64_t end, StreamId stream) {
    const auto first = state.blocks.lower_bound(begin);
    const auto last = state.blocks.lower_bound(end);
    Bytes allocated;
    Bytes active;
    Bytes requested;
    for (auto block = first; block != last; ++block) {
      active += block->second.bytes;
      if (block->second.state != PlacedBlock::State::kAllocated) continue;
      allocated += block->second.bytes;
      requested += block->second.requested;
    }
    const auto total = static_cast<std::int64_t>(end - begin);
    out_.begin_dict();
    out_.key_number("device", static_cast<std::int64_t>(device));
    out_.key_number("address", static_cast<std::int64_t>(begin));
    out_.key_number("total_size", total);
    out_.key_number("allocated_size", allocated.raw());
    out_.key_number("active_size", active.raw());
    out_.key_number("requested_size", requested.raw());
    out_.key_number("stream", stream.raw());
    const bool is_small = !state.expandable && total <= static_cast<std::int64_t>(kSmallBuffer);
    out_.key_text("segment_type", is_small ? "small" : "large");
    out_.text("segment_pool_id");
    out_.pair(0, 0);
    out_.text("is_expandable");
    out_.truth(state.expandable);
    out_.text("frames");
    out_.begin_list();
    out_.end_list();
    out_.text("blocks");
    out_.begin_list();
    std::uint64_t at = begin;
    for (auto block = first; block != last; ++block) {
      write_gap(at, block->first);
      write_block(block->first, block->second);
      at = block->first + static_cast<std::uint64_t>(block->second.bytes.raw());
    }
    write_gap(at, end);
    out_.end_list();
    out_.end_dict();
  }

  void write_gap(std::uint64_t from, std::uint64_t to) {
    if (from >= to) return;
    out_.begin_dict();
    out_.key_number("address", static_cast<std::int64_t>(from));
    out_.key_number("size", static_cast<std::int64_t>(to - from));
    out_.key_number("requested_size", 0);
    out_.key_text("state", "inactive");
    out_.text("frames");
    out_.begin_list();
    out_.end_list();
    out_.end_dict();
  }

  void write_block(std::uint64_t address, const PlacedBlock& block) {
    out_.begin_dict();
    out_.key_number("address", static_cast<std::int64_t>(address));
    out_.key_number("size", block.bytes.raw());
    out_.key_number("requested_size", block.requested.raw());
    out_.key_text("state", block.state == PlacedBlock::State::kAllocated ? "active_allocated"
                                                                         : "active_pending_free");
    out_.text("frames");
    out_.use(block.stack);
    out_.end_dict();
  }

  void write_settings() {
    out_.text("allocator_settings");
    out_.begin_dict();
    if (conf_) {
      std::string scratch;
      out_.key_text("PYTORCH_CUDA_ALLOC_CONF", valid_utf8(*conf_, scratch));
      if (const Result<AllocatorConfig> config = AllocatorConfig::parse(*conf_); config.ok()) {
        const bool is_limited = config->max_split_size != AllocatorConfig::kUnlimited;
        out_.key_number("max_split_size", is_limited ? config->max_split_size.raw() : -1);
        out_.text("expandable_segments");
        out_.truth(config->expandable_segments);
      }
    }
    out_.end_dict();
  }

  std::span<const ExportInput> runs_;
  RankReader ranks_;
  PickleWriter out_;
  Stacks stacks_;
  std::vector<FinalState> states_;  // by device of the snapshot
  std::optional<std::string> conf_;
  bool expandable_ = false;
};

}  // namespace

Result<std::vector<std::string>> export_snapshot(std::span<const ExportInput> runs,
                                                 std::unique_ptr<Sink> sink) {
  return SnapshotWriter(runs, std::move(sink)).write();
}

}  // namespace peakline
