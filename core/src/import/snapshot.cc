// torch's memory snapshots as events.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include <peakline/allocator_config.h>
#include <peakline/import.h>

#include "import/allocator_history.h"
#include "import/pickle.h"

namespace peakline {
namespace {

using pickle::Container;
using pickle::Value;

std::int64_t integer(const Container& dict, std::string_view key, std::int64_t missing = 0) {
  const Value* value = dict.find(key);
  const std::int64_t* number = value != nullptr ? pickle::integer_of(*value) : nullptr;
  return number != nullptr ? *number : missing;
}

std::string_view text(const Container& dict, std::string_view key) {
  const Value* value = dict.find(key);
  return value != nullptr ? pickle::text_of(*value) : std::string_view();
}

// "train.py:12 forward": the innermost frame of the program itself. C++ frames have no line of use.
// In a snapshot that peakline wrote, the op.
std::string frame_name(const Value* frames) {
  const Container* list = frames != nullptr ? pickle::container_of(*frames) : nullptr;
  if (list == nullptr) return {};
  for (const Value& item : list->items) {
    const Container* frame = pickle::container_of(item);
    if (frame == nullptr) continue;
    std::string_view file = text(*frame, "filename");
    if (file == "op") return std::string(text(*frame, "name"));
    if (!file.ends_with(".py")) continue;
    file.remove_prefix(file.rfind('/') + 1);
    return fmt::format("{}:{} {}", file, integer(*frame, "line"), text(*frame, "name"));
  }
  return {};
}

// Of torch, or of Python itself: what the program only calls.
bool is_library(std::string_view file) {
  const bool installed = file.find("-packages/") != std::string_view::npos;
  return file.find("-packages/torch/") != std::string_view::npos || file.starts_with("<frozen ") ||
         (!installed && file.find("/lib/python3.") != std::string_view::npos);
}

// The Python frames as a stack, folded as those of our own recordings are: of torch's lines only the
// innermost stays, and only where the stack ends in torch.
StackId stack_of(const Value* frames, EventSink& sink) {
  const Container* list = frames != nullptr ? pickle::container_of(*frames) : nullptr;
  StackId stack;
  if (list == nullptr) return stack;
  LineId library;
  for (auto item = list->items.rbegin(); item != list->items.rend(); ++item) {
    const Container* frame = pickle::container_of(*item);
    const std::string_view file = frame != nullptr ? text(*frame, "filename") : std::string_view();
    const bool is_python = file.ends_with(".py") || file.starts_with("<");
    const std::int64_t line = is_python ? integer(*frame, "line") : 0;
    if (line <= 0 || line > std::numeric_limits<std::uint32_t>::max()) continue;
    const bool folded = is_library(file);
    const LineId id = sink.line({sink.name(file),
                                 sink.name(text(*frame, "name")),
                                 static_cast<std::uint32_t>(line),
                                 folded,
                                 {}});
    if (!folded) stack = sink.stack(stack, id);
    library = folded ? id : LineId{};
  }
  return library == LineId{} ? stack : sink.stack(stack, library);
}

// Whether it matters where the program was at such an entry.
bool has_place(std::string_view action) {
  return action == "alloc" || action == "oom" || action == "segment_free" ||
         action == "segment_unmap";
}

// Streams are pointers in a snapshot; recordings number them, the default stream first.
class StreamNumbers {
 public:
  StreamId of(std::int64_t handle) {
    if (handle == 0) return StreamId{};
    const auto [it, is_new] =
        numbers_.try_emplace(handle, static_cast<std::uint32_t>(numbers_.size() + 1));
    return StreamId(it->second);
  }

 private:
  std::unordered_map<std::int64_t, std::uint32_t> numbers_;
};

// What was there before a device's trace begins, found in a first read of the snapshot.
struct Before {
  struct Block {
    std::int64_t size = 0;
    std::int64_t stream = 0;
  };
  std::map<std::uint64_t, Block> blocks;  // alive then, by address
  std::map<std::uint64_t, Block> segments;
  // While reading: what the trace itself began.
  std::unordered_set<std::uint64_t> began;
  std::unordered_set<std::uint64_t> segments_began;
  std::int64_t first_time = -1;
};

// Walks over a snapshot's segments and trace entries as they are read.
class Walker : public pickle::Listener {
 public:
  Result<bool> on_items(std::string_view key, bool nested, std::size_t index,
                        std::vector<Value>& items) final {
    if (key == "device_traces" && nested) {
      for (const Value& item : items) {
        const Container* entry = pickle::container_of(item);
        if (entry == nullptr) return invalid_input("a trace entry of the snapshot is no dict");
        PEAKLINE_RETURN_IF_ERROR(on_entry(index, *entry));
        ++entries_;
      }
      return true;
    }
    if (key == "segments" && !nested) {
      for (const Value& item : items) {
        const Container* segment = pickle::container_of(item);
        if (segment != nullptr && segment->find("blocks") != nullptr) on_segment(*segment);
      }
      has_segments_ = true;
      return true;
    }
    return false;
  }
  virtual Status on_entry(std::size_t device, const Container& entry) = 0;
  virtual void on_segment(const Container& segment) = 0;
  [[nodiscard]] std::uint64_t entries() const noexcept { return entries_; }
  [[nodiscard]] bool has_segments() const noexcept { return has_segments_; }

 private:
  std::uint64_t entries_ = 0;
  bool has_segments_ = false;
};

// The first read: what was alive before each trace.
class BeforeFinder final : public Walker {
 public:
  std::map<std::size_t, Before> devices;

  Status on_entry(std::size_t device, const Container& entry) override {
    Before& before = devices[device];
    if (before.first_time < 0) before.first_time = integer(entry, "time_us", 0);
    const std::string_view action = text(entry, "action");
    const auto address = static_cast<std::uint64_t>(integer(entry, "addr"));
    const Before::Block block{integer(entry, "size"), integer(entry, "stream")};
    if (action == "alloc") {
      before.began.insert(address);
    } else if (action == "free_requested") {
      // Freed without being allocated here: it was there before. Afterwards the address is free.
      if (before.began.erase(address) == 0) before.blocks.emplace(address, block);
    } else if (action == "segment_alloc") {
      before.segments_began.insert(address);
    } else if (action == "segment_free") {
      if (before.segments_began.erase(address) == 0) before.segments.emplace(address, block);
    }
    return {};
  }

  // Segments come before the traces in the file; whether a block in them was there before is known
  // only at the end.
  void on_segment(const Container& segment) override {
    const auto device =
        static_cast<std::size_t>(std::max<std::int64_t>(0, integer(segment, "device")));
    const std::int64_t stream = integer(segment, "stream");
    auto address = static_cast<std::uint64_t>(integer(segment, "address"));
    At& at = at_end_[device];
    at.segments.emplace(address, Before::Block{integer(segment, "total_size"), stream});
    const Container* blocks = pickle::container_of(*segment.find("blocks"));
    if (blocks == nullptr) return;
    for (const Value& item : blocks->items) {
      const Container* block = pickle::container_of(item);
      if (block == nullptr) continue;
      const std::int64_t size = integer(*block, "size");
      const auto own = static_cast<std::uint64_t>(
          integer(*block, "address", static_cast<std::int64_t>(address)));
      if (text(*block, "state") == "active_allocated") {
        const std::int64_t requested = integer(*block, "requested_size", size);
        at.blocks.emplace(own, Before::Block{requested > 0 ? requested : size, stream});
      }
      address += static_cast<std::uint64_t>(std::max<std::int64_t>(0, size));
    }
  }

  void finish() {
    for (auto& [device, at] : at_end_) {
      Before& before = devices[device];
      for (const auto& [address, block] : at.blocks) {
        if (!before.began.contains(address)) before.blocks.emplace(address, block);
      }
      for (const auto& [address, segment] : at.segments) {
        if (!before.segments_began.contains(address)) before.segments.emplace(address, segment);
      }
    }
  }

 private:
  struct At {
    std::map<std::uint64_t, Before::Block> blocks;
    std::map<std::uint64_t, Before::Block> segments;
  };
  std::map<std::size_t, At> at_end_;
};

// The second read: events.
class Emitter final : public Walker {
 public:
  Emitter(EventSink& sink, std::map<std::size_t, Before>& before, const AllocatorConfig& settings)
      : sink_(sink), before_(before), settings_(settings) {
    for (const auto& [device, facts] : before_) {
      if (origin_ < 0 || (facts.first_time >= 0 && facts.first_time < origin_)) {
        origin_ = facts.first_time;
      }
    }
  }

  Status on_entry(std::size_t device, const Container& dict) override {
    Result<AllocatorHistory*> history = history_of(device);
    if (!history.ok()) return history.status();
    HistoryEntry entry;
    entry.action = text(dict, "action");
    entry.address = static_cast<std::uint64_t>(integer(dict, "addr"));
    entry.size = integer(dict, "size");
    entry.stream = streams_.of(integer(dict, "stream"));
    entry.time = TimeNs(std::max<std::int64_t>(0, integer(dict, "time_us") - origin_) * 1000);
    const std::string op =
        has_place(entry.action) ? frame_name(dict.find("frames")) : std::string();
    entry.op = op;
    if (entry.action == "alloc") entry.stack = stack_of(dict.find("frames"), sink_);
    if (!AllocatorHistory::knows(entry.action)) return {};
    Status status = (*history)->on(entry);
    if (status.ok() || status.code() == StatusCode::kIo) return status;
    return invalid_input(
        fmt::format("entry {} of the snapshot's trace: {}", entries() + 1, status.message()));
  }
  void on_segment(const Container&) override {}

  Result<ImportedCounts> finish() {
    // A device without a trace still has what its segments say.
    for (const auto& [device, facts] : before_) {
      const Result<AllocatorHistory*> history = history_of(device);
      if (!history.ok()) return history.status();
    }
    ImportedCounts total;
    for (const auto& [device, history] : histories_) {
      PEAKLINE_RETURN_IF_ERROR(history->finish());
      total.allocations += history->counts().allocations;
      total.frees += history->counts().frees;
      total.segments += history->counts().segments;
      total.already_alive += history->counts().already_alive;
      total.skipped += history->counts().skipped;
    }
    return total;
  }

 private:
  // A device's history begins with what was there before.
  Result<AllocatorHistory*> history_of(std::size_t device) {
    const auto it = histories_.find(device);
    if (it != histories_.end()) return it->second.get();
    if (device > 254) return invalid_input("the snapshot has more than 255 devices");
    DeviceInfo info;
    info.name = fmt::format("cuda:{}", device);
    auto made = std::make_unique<AllocatorHistory>(sink_, sink_.device(info), settings_, true);
    Before& before = before_[device];
    for (const auto& [address, segment] : before.segments) {
      HistoryEntry entry;
      entry.action = "segment_alloc";
      entry.address = address;
      entry.size = segment.size;
      entry.stream = streams_.of(segment.stream);
      PEAKLINE_RETURN_IF_ERROR(made->on(entry));
    }
    for (const auto& [address, block] : before.blocks) {
      PEAKLINE_RETURN_IF_ERROR(made->already_alive(address, block.size, streams_.of(block.stream)));
    }
    return histories_.emplace(device, std::move(made)).first->second.get();
  }

  EventSink& sink_;
  std::map<std::size_t, Before>& before_;
  AllocatorConfig settings_;
  std::int64_t origin_ = -1;
  StreamNumbers streams_;
  std::map<std::size_t, std::unique_ptr<AllocatorHistory>> histories_;
};

// The settings that torch puts into its snapshots; nothing where it does not.
std::optional<std::string> settings_of(const Value& snapshot) {
  const Container* root = pickle::container_of(snapshot);
  const Value* found = root != nullptr ? root->find("allocator_settings") : nullptr;
  const Container* settings = found != nullptr ? pickle::container_of(*found) : nullptr;
  if (settings == nullptr) return std::nullopt;
  for (const std::string_view key : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    if (settings->find(key) != nullptr) return std::string(text(*settings, key));
  }
  return std::nullopt;
}

Result<Value> read_with(const SourceOpener& open, Walker& walker) {
  Result<std::unique_ptr<Source>> source = open();
  if (!source.ok()) return source.status();
  Result<Value> value = pickle::read(**source, &walker);
  if (!value.ok()) return value.status();
  if (walker.has_segments() || walker.entries() > 0) return value;
  const Container* root = pickle::container_of(*value);
  if (root != nullptr && root->find("device_traces") != nullptr) return value;
  return invalid_input(fmt::format(
      "{} is a pickle, but not a memory snapshot: it has no 'segments' and no 'device_traces'",
      (*source)->name()));
}

}  // namespace

Result<ImportedCounts> import_snapshot(const SourceOpener& open, EventSink& sink) {
  BeforeFinder finder;
  const Result<Value> snapshot = read_with(open, finder);
  if (!snapshot.ok()) return snapshot.status();
  finder.finish();
  // Before the first event: who simulates needs them then.
  AllocatorConfig settings;
  if (const std::optional<std::string> conf = settings_of(*snapshot)) {
    sink.info("allocator_conf", *conf);
    if (const Result<AllocatorConfig> config = AllocatorConfig::parse(*conf); config.ok()) {
      sink.info("allocator_settings", config->canonical());
      settings = *config;
    }
  }
  Emitter emitter(sink, finder.devices, settings);
  const Result<Value> again = read_with(open, emitter);
  if (!again.ok()) return again.status();
  sink.info("producer", "import");
  sink.info("imported_from", "torch snapshot");
  return emitter.finish();
}

}  // namespace peakline
