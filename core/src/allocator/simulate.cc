#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_set>

#include <peakline/import.h>
#include <peakline/simulate.h>

#include "allocator/session.h"

namespace peakline {
namespace {

// A source with its first bytes looked at and put back.
class PeekedSource final : public Source {
 public:
  explicit PeekedSource(std::unique_ptr<Source> source) : source_(std::move(source)) {}

  Result<std::span<const std::byte>> peek(std::size_t bytes) {
    start_.resize(bytes);
    std::size_t filled = 0;
    while (filled < bytes) {
      const Result<std::size_t> got = source_->read(std::span(start_).subspan(filled));
      if (!got.ok()) return got.status();
      if (*got == 0) break;
      filled += *got;
    }
    start_.resize(filled);
    return std::span<const std::byte>(start_);
  }
  Result<std::size_t> read(std::span<std::byte> buffer) override {
    if (at_ == start_.size()) return source_->read(buffer);
    const std::size_t size = std::min(buffer.size(), start_.size() - at_);
    std::copy_n(start_.begin() + static_cast<std::ptrdiff_t>(at_), size, buffer.begin());
    at_ += size;
    return size;
  }
  [[nodiscard]] std::string_view name() const noexcept override { return source_->name(); }

 private:
  std::unique_ptr<Source> source_;
  std::vector<std::byte> start_;
  std::size_t at_ = 0;
};

// What was alive when the first session failed. Blocks are known by then, what they were for only
// when they die.
class AliveAtFailure {
 public:
  // `failed` is in the ledger, since the recorded run did get it.
  void mark(const Ledger& ledger, DeviceId device, BlockId failed) {
    ledger.for_each_live([&](const Block& block) {
      if (block.device == device && block.id != failed) unresolved_.insert(block.id.raw());
    });
  }
  void resolve(const Block& block, CategoryId category, const Dictionary& dictionary) {
    if (unresolved_.empty() || unresolved_.erase(block.id.raw()) == 0) return;
    by_category_[dictionary.category_label(category)] += block.bytes;
    const std::string& path = dictionary.module(block.module).path;
    by_module_[path.empty() ? "(no module)" : path] += block.bytes;
  }
  void fill(OomReport& report) const {
    report.by_category = sorted(by_category_);
    report.by_module = sorted(by_module_);
  }

 private:
  static std::vector<NamedBytes> sorted(const std::map<std::string, Bytes>& rows) {
    std::vector<NamedBytes> out;
    out.reserve(rows.size());
    for (const auto& [name, bytes] : rows) out.push_back({name, bytes});
    std::ranges::stable_sort(out, std::greater{}, &NamedBytes::bytes);
    return out;
  }

  std::unordered_set<std::uint64_t> unresolved_;
  std::map<std::string, Bytes> by_category_;
  std::map<std::string, Bytes> by_module_;
};

// All sessions of one device, as a pass over the recording. The first session is the one asked for.
class DeviceSimulation final : public Pass {
 public:
  DeviceSimulation(DeviceId device, std::string name, bool limited)
      : device_(device), name_(std::move(name)), limited_(limited) {}

  void add(std::unique_ptr<Session> session) { sessions_.push_back(std::move(session)); }
  [[nodiscard]] bool empty() const noexcept { return sessions_.empty(); }

  void on_alloc(const Now& now, const Block& block) override {
    if (block.device != device_) return;
    const Bytes requested = block.requested > Bytes{} ? block.requested : block.bytes;
    if (requested <= Bytes{}) return;  // torch answers these without its allocator
    for (std::size_t i = 0; i < sessions_.size(); ++i) {
      const bool ran = !sessions_[i]->failed();
      if (!sessions_[i]->alloc(block.id, requested, block.stream) && ran && i == 0) {
        note_failure(now, block.op, block.module, block.id);
      }
    }
  }

  void on_free(const Now& now, const Block& block, CategoryId category) override {
    if (block.device != device_) return;
    alive_.resolve(block, category, now.dictionary);
    for (const auto& session : sessions_) session->free(block.id);
  }

  void on_step_end(const Now&) override { ++step_; }

  void on_other(const Now& now, const Event& event) override {
    if (const auto* use = std::get_if<StreamUse>(&event.body)) {
      for (const auto& session : sessions_) session->stream_use(use->block, use->stream);
    } else if (const auto* done = std::get_if<FreeCompleted>(&event.body)) {
      for (const auto& session : sessions_) session->free_completed(done->block);
    } else if (const auto* empty = std::get_if<EmptyCache>(&event.body)) {
      if (empty->device != device_) return;
      for (const auto& session : sessions_) session->empty_cache();
    } else if (const auto* failure = std::get_if<OutOfMemory>(&event.body)) {
      if (failure->device == device_ && failure->kind == OutOfMemory::Kind::kFailed) {
        try_again(now, failure->requested);
      }
    }
  }

  // Passes are not told about single segments, so these come from the side.
  void on_segment(const Event& event) {
    if (const auto* taken = std::get_if<SegmentAlloc>(&event.body)) {
      if (taken->device != device_ || sessions_.empty()) return;
      const bool maps = sessions_[0]->allocator().config().expandable_segments;
      sessions_[0]->recorded({maps ? SegmentChange::Kind::kMap : SegmentChange::Kind::kAlloc,
                              taken->address, taken->bytes, taken->stream, PoolId{}});
    } else if (const auto* returned = std::get_if<SegmentFree>(&event.body)) {
      if (returned->device != device_ || sessions_.empty()) return;
      sessions_[0]->recorded(
          {SegmentChange::Kind::kFree, returned->address, returned->bytes, StreamId{}, PoolId{}});
    }
  }

  void finish(const Now& now) override {
    now.ledger.for_each_live([&](const Block& block) {
      alive_.resolve(block, resolve_category(block, now.context, true), now.dictionary);
    });
    if (oom_) alive_.fill(*oom_);
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] DeviceId device() const noexcept { return device_; }
  [[nodiscard]] const std::vector<std::unique_ptr<Session>>& sessions() const { return sessions_; }
  [[nodiscard]] const std::optional<OomReport>& oom() const noexcept { return oom_; }

 private:
  // The recorded run did not get this. Under a limit it is asked for again: with other settings it
  // may pass, and nobody used it, so it is given back at once.
  void try_again(const Now& now, Bytes requested) {
    const BlockId block(std::numeric_limits<std::uint64_t>::max());
    if (!limited_ || requested <= Bytes{}) return;
    for (std::size_t i = 0; i < sessions_.size(); ++i) {
      const bool ran = !sessions_[i]->failed();
      if (!sessions_[i]->alloc(block, requested, StreamId{}) && ran && i == 0) {
        const ThreadId thread = now.thread;
        note_failure(now, now.context.op(thread).op, now.context.module(thread), block);
      }
      sessions_[i]->free(block);
    }
  }

  void note_failure(const Now& now, OpId op, ModuleId module, BlockId failed) {
    const CachingAllocator& allocator = sessions_[0]->allocator();
    OomReport report;
    report.info = *allocator.out_of_memory();
    if (report.info.limit && now.dictionary.device(device_).total <= Bytes{}) {
      // Nobody said how large the device is: then the limit is its size.
      report.info.device_total = *report.info.limit;
      report.info.device_free = std::max(Bytes{}, *report.info.limit - report.info.reserved);
    }
    report.message = out_of_memory_message(report.info, 0);
    report.event = now.event;
    report.time = now.time;
    report.step = step_ + 1;
    report.op = now.dictionary.op(op);
    report.module = now.dictionary.module(module).path;
    report.use = memory_use(allocator);
    report.largest_free_block = allocator.largest_free_block();
    report.only_fragmented = report.info.requested <= report.use.cached;
    oom_ = std::move(report);
    alive_.mark(now.ledger, device_, failed);
  }

  DeviceId device_;
  std::string name_;
  bool limited_;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::optional<OomReport> oom_;
  AliveAtFailure alive_;
  std::uint32_t step_ = 0;
};

// Makes a DeviceSimulation for each device as it first appears, and hands events on.
class Simulator {
 public:
  Simulator(const SimulateOptions& options, const Dictionary& dictionary, const RunInfo& info)
      : options_(options), dictionary_(dictionary), info_(info), replay_(dictionary) {}

  Status on(const Event& event) {
    while (known_devices_ < dictionary_.device_count()) PEAKLINE_RETURN_IF_ERROR(add_device());
    for (const auto& device : devices_) device->on_segment(event);
    replay_.on(event);
    return {};
  }

  Result<SimulationResult> finish();

 private:
  Status add_device() {
    const DeviceId id(static_cast<std::uint8_t>(known_devices_++));
    const DeviceInfo& info = dictionary_.device(id);
    const bool wanted = options_.device.empty() ? info.name != "cpu" || options_.device == info.name
                                                : info.name == options_.device;
    if (!wanted) return {};
    auto simulation =
        std::make_unique<DeviceSimulation>(id, info.name, options_.memory.has_value());
    PEAKLINE_RETURN_IF_ERROR(add_sessions(*simulation, info));
    replay_.add(*simulation);
    devices_.push_back(std::move(simulation));
    return {};
  }

  Status add_sessions(DeviceSimulation& simulation, const DeviceInfo& info) {
    const Result<TorchVersion> torch = version();
    if (!torch.ok()) return torch.status();
    DriverOptions driver;
    if (info.total > Bytes{}) driver.total = info.total;
    std::vector<std::string> confs = {options_.conf};
    // Other settings are needed to say what would have helped, so they run along under a limit.
    if (options_.compare || options_.memory) {
      for (std::string& conf : sensible_settings(*torch, options_.memory.has_value())) {
        if (conf != options_.conf) confs.push_back(std::move(conf));
      }
    }
    for (const std::string& conf : confs) {
      Result<AllocatorConfig> config = AllocatorConfig::parse(conf, *torch);
      if (!config.ok()) return config.status();
      simulation.add(std::make_unique<Session>(*config, driver, options_.memory));
    }
    return {};
  }

  [[nodiscard]] Result<TorchVersion> version() const {
    if (options_.torch) return *options_.torch;
    const auto it = info_.find("torch");
    if (it == info_.end()) return TorchVersion{};
    const Result<TorchVersion> recorded = parse_torch_version(it->second);
    return recorded.ok() ? *recorded : TorchVersion{};
  }

  [[nodiscard]] const DeviceSimulation* chosen() const;

  const SimulateOptions& options_;
  const Dictionary& dictionary_;
  const RunInfo& info_;
  Replay replay_;
  std::size_t known_devices_ = 0;
  std::vector<std::unique_ptr<DeviceSimulation>> devices_;
};

// The device with the highest peak; of equal ones the first.
const DeviceSimulation* Simulator::chosen() const {
  const DeviceSimulation* best = nullptr;
  for (const auto& device : devices_) {
    const auto peak = [](const DeviceSimulation& d) {
      return d.sessions()[0]->allocator().stats().reserved_bytes[0].peak;
    };
    if (best == nullptr || peak(*device) > peak(*best)) best = device.get();
  }
  return best;
}

void rank(std::vector<SettingOutcome>& outcomes) {
  std::ranges::stable_sort(outcomes, {}, [](const SettingOutcome& outcome) {
    return std::tuple(!outcome.fits, outcome.retries, outcome.peak_reserved.raw());
  });
}

Result<SimulationResult> Simulator::finish() {
  replay_.finish();
  const DeviceSimulation* device = chosen();
  if (device == nullptr) {
    if (!options_.device.empty()) {
      return invalid_input(fmt::format("the recording has no device '{}'", options_.device));
    }
    return invalid_input(
        "the recording has no events of a GPU; --device names another device to simulate");
  }
  SimulationResult result;
  result.device = device->name();
  result.gpu = dictionary_.device(device->device()).model;
  if (const auto it = info_.find("torch"); it != info_.end()) result.torch = it->second;
  result.memory = options_.memory;
  const Session& first = *device->sessions()[0];
  result.outcome = first.outcome();
  result.stats = first.allocator().stats();
  result.oom = device->oom();
  result.recorded = first.compare_with_record();
  if (options_.compare || result.oom) {
    for (std::size_t i = 1; i < device->sessions().size(); ++i) {
      result.others.push_back(device->sessions()[i]->outcome());
    }
    rank(result.others);
  }
  result.diagnostics = replay_.diagnostics();
  for (const std::string& name : first.allocator().config().without_effect) {
    result.warnings.push_back(fmt::format("setting {} changes no device memory", name));
  }
  return result;
}

Result<SimulationResult> simulate_recording(std::unique_ptr<Source> source,
                                            const SimulateOptions& options) {
  Result<TraceReader> reader = TraceReader::open(std::move(source));
  if (!reader.ok()) return reader.status();
  Simulator simulator(options, reader->dictionary(), reader->info());
  for (;;) {
    const Result<std::span<const Event>> events = reader->next();
    if (!events.ok()) return events.status();
    if (events->empty()) break;
    for (const Event& event : *events) PEAKLINE_RETURN_IF_ERROR(simulator.on(event));
  }
  Result<SimulationResult> result = simulator.finish();
  if (result.ok()) result->diagnostics.merge(reader->diagnostics());
  return result;
}

}  // namespace

std::vector<std::string> sensible_settings(TorchVersion torch, bool limited) {
  std::vector<std::string> settings = {
      "",
      "expandable_segments:True",
      "max_split_size_mb:64",
      "max_split_size_mb:128",
      "max_split_size_mb:256",
      "max_split_size_mb:512",
      "roundup_power2_divisions:4",
      "roundup_power2_divisions:8",
      "roundup_power2_divisions:16",
  };
  if (torch >= TorchVersion{2, 11}) settings.emplace_back("large_segment_size_mb:64");
  if (limited) {
    settings.emplace_back("garbage_collection_threshold:0.6");
    settings.emplace_back("garbage_collection_threshold:0.8");
    settings.emplace_back("max_split_size_mb:128,garbage_collection_threshold:0.8");
  }
  return settings;
}

Result<SimulationResult> simulate(const SourceOpener& open, const SimulateOptions& options) {
  // The settings are the user's own words: say what is wrong with them before reading anything.
  const Result<AllocatorConfig> config =
      AllocatorConfig::parse(options.conf, options.torch.value_or(TorchVersion{}));
  if (!config.ok()) return config.status();
  Result<std::unique_ptr<Source>> source = open();
  if (!source.ok()) return source.status();
  auto peeked = std::make_unique<PeekedSource>(std::move(source).value());
  const Result<std::span<const std::byte>> start = peeked->peek(256);
  if (!start.ok()) return start.status();
  const FileKind kind = kind_of_file(*start);
  if (kind != FileKind::kCsv && kind != FileKind::kPickle) {
    return simulate_recording(std::move(peeked), options);
  }
  Dictionary dictionary;
  RunInfo info;
  Simulator simulator(options, dictionary, info);
  const auto sink =
      make_callback_sink(dictionary, info, [&](const Event& event) { return simulator.on(event); });
  const Result<ImportedCounts> counts =
      kind == FileKind::kCsv ? import_csv(*peeked, *sink) : import_snapshot(open, *sink);
  if (!counts.ok()) return counts.status();
  return simulator.finish();
}

Result<SimulationResult> simulate_file(const std::string& path, const SimulateOptions& options) {
  return simulate([&path] { return open_file_source(path); }, options);
}

}  // namespace peakline
