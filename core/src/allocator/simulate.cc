#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_set>

#include <peakline/import.h>
#include <peakline/simulate.h>

#include "allocator/run_settings.h"
#include "allocator/session.h"
#include "base/capped.h"

namespace peakline {
namespace {

bool is_believed(Bytes bytes) { return bytes >= Bytes{} && bytes <= kMostBytes; }

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
  DeviceSimulation(DeviceId device, std::string name, std::optional<Bytes> limit,
                   SettingsSource settings_from, bool asks_again, bool empties_cache)
      : device_(device),
        name_(std::move(name)),
        limit_(limit),
        settings_from_(settings_from),
        asks_again_(asks_again),
        empties_cache_(empties_cache) {}

  void add(std::unique_ptr<Session> session) { sessions_.push_back(std::move(session)); }
  [[nodiscard]] bool empty() const noexcept { return sessions_.empty(); }

  void on_alloc(const Now& now, const Block& block) override {
    if (block.device != device_) return;
    if (is_correction(now, block)) {
      for (const auto& session : sessions_) session->keep();
      return;
    }
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
    freed_ = {block.id, now.event};
    for (const auto& session : sessions_) session->free(block.id);
  }

  void on_step_end(const Now&) override {
    ++step_;
    if (!empties_cache_) return;
    for (const auto& session : sessions_) session->empty_cache();
  }

  void on_other(const Now& now, const Event& event) override {
    if (const auto* use = std::get_if<StreamUse>(&event.body)) {
      for (const auto& session : sessions_) session->stream_use(use->block, use->stream);
    } else if (const auto* done = std::get_if<FreeCompleted>(&event.body)) {
      for (const auto& session : sessions_) session->free_completed(done->block);
    } else if (const auto* empty = std::get_if<EmptyCache>(&event.body)) {
      if (empty->device != device_) return;
      for (const auto& session : sessions_) session->empty_cache();
    } else if (const auto* failure = std::get_if<OutOfMemory>(&event.body)) {
      if (failure->device != device_) return;
      if (failure->kind == OutOfMemory::Kind::kFailed) return try_again(now, failure->requested);
      for (const auto& session : sessions_) session->retried();
    }
  }

  // Passes are not told about single segments, so these come from the side.
  void segment_event(const Event& event) {
    if (const auto* taken = std::get_if<SegmentAlloc>(&event.body)) {
      if (taken->device != device_ || sessions_.empty() || !is_believed(taken->bytes)) return;
      sees_segments_ = true;
      const bool maps = sessions_[0]->allocator().config().expandable_segments;
      sessions_[0]->recorded({maps ? SegmentChange::Kind::kMap : SegmentChange::Kind::kAlloc,
                              taken->address, taken->bytes, taken->stream, PoolId{}});
    } else if (const auto* returned = std::get_if<SegmentFree>(&event.body)) {
      if (returned->device != device_ || sessions_.empty() || !is_believed(returned->bytes)) return;
      sessions_[0]->recorded(
          {SegmentChange::Kind::kFree, returned->address, returned->bytes, StreamId{}, PoolId{}});
    }
  }

  void finish(const Now& now) override {
    for (const auto& session : sessions_) session->finish();
    now.ledger.for_each_live([&](const Block& block) {
      alive_.resolve(block, resolve_category(block, now.context, true), now.dictionary);
    });
    if (oom_) alive_.fill(*oom_);
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::optional<Bytes> limit() const noexcept { return limit_; }
  [[nodiscard]] SettingsSource settings_from() const noexcept { return settings_from_; }
  [[nodiscard]] DeviceId device() const noexcept { return device_; }
  [[nodiscard]] const std::vector<std::unique_ptr<Session>>& sessions() const { return sessions_; }
  [[nodiscard]] const std::optional<OomReport>& oom() const noexcept { return oom_; }

 private:
  struct Freed {
    BlockId block;
    std::uint64_t event = 0;
  };

  // A block that changes its size is freed and allocated by one event. An allocator whose segments
  // are recorded never does that: its block's true size was found out later than the block.
  [[nodiscard]] bool is_correction(const Now& now, const Block& block) const noexcept {
    return sees_segments_ && freed_.block == block.id && freed_.event == now.event;
  }

  // The recorded run did not get this. Where a limit is known it is asked for again: with other
  // settings it may pass, and nobody used it, so it is given back at once.
  void try_again(const Now& now, Bytes requested) {
    const BlockId block(std::numeric_limits<std::uint64_t>::max());
    if (!asks_again_ || requested <= Bytes{}) return;
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
  std::optional<Bytes> limit_;
  SettingsSource settings_from_;
  bool asks_again_;
  bool empties_cache_;
  bool sees_segments_ = false;
  Freed freed_;  // the last one
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
    for (const auto& device : devices_) device->segment_event(event);
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
    const Result<RunSettings> found = settings_of(info.name);
    if (!found.ok()) return found.status();
    const RunSettings& run = *found;
    const std::optional<Bytes> limit = options_.memory ? options_.memory : run.limit;
    const SettingsSource from = options_.conf ? SettingsSource::kGiven
                                : run.conf    ? SettingsSource::kRecording
                                              : SettingsSource::kDefault;
    auto simulation = std::make_unique<DeviceSimulation>(id, info.name, limit, from,
                                                         limit.has_value() || run.conf.has_value(),
                                                         options_.empty_cache_each_step);
    DriverOptions driver;
    if (info.total > Bytes{}) driver.total = info.total;
    driver.in_use = run.outside;
    driver.most = options_.memory ? options_.memory : run.memory;
    PEAKLINE_RETURN_IF_ERROR(
        add_sessions(*simulation, options_.conf.value_or(run.conf.value_or("")), driver));
    replay_.add(*simulation);
    devices_.push_back(std::move(simulation));
    return {};
  }

  // The run's own settings, unless they are of a kind that cannot be simulated.
  Result<RunSettings> settings_of(const std::string& device) {
    RunSettings run = RunSettings::of(info_, device);
    if (options_.conf || !run.conf) return run;
    const TorchVersion torch = version();
    const Result<AllocatorConfig> config = AllocatorConfig::parse(*run.conf, torch);
    if (config.ok()) return run;
    warnings_.push_back(fmt::format("the run's settings '{}' are left out: {}", *run.conf,
                                    config.status().message()));
    run.conf.reset();
    return run;
  }

  Status add_sessions(DeviceSimulation& simulation, const std::string& base,
                      const DriverOptions& driver) {
    const TorchVersion torch = version();
    const std::optional<Bytes> limit = simulation.limit();
    const Result<AllocatorConfig> config = AllocatorConfig::parse(base, torch);
    if (!config.ok()) return config.status();
    simulation.add(std::make_unique<Session>(*config, driver, limit));
    // Other settings are needed to say what would have helped, so they run along under a limit.
    if (!options_.compare && !limit) return {};
    std::vector<std::string> tried = {config->canonical()};
    for (const std::string& setting : sensible_settings(torch, limit.has_value())) {
      const Result<AllocatorConfig> other =
          AllocatorConfig::parse(setting.empty() ? "" : add_settings(base, setting), torch);
      if (!other.ok()) continue;  // the two do not go together
      if (std::ranges::find(tried, other->canonical()) != tried.end()) continue;
      tried.push_back(other->canonical());
      simulation.add(std::make_unique<Session>(*other, driver, limit));
    }
    return {};
  }

  [[nodiscard]] TorchVersion version() const {
    return options_.torch ? *options_.torch : allocator_release(info_);
  }

  [[nodiscard]] const DeviceSimulation* chosen() const;

  const SimulateOptions& options_;
  const Dictionary& dictionary_;
  const RunInfo& info_;
  Replay replay_;
  std::size_t known_devices_ = 0;
  std::vector<std::unique_ptr<DeviceSimulation>> devices_;
  std::vector<std::string> warnings_;
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
  result.memory = device->limit();
  result.settings_from = device->settings_from();
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
  result.warnings = warnings_;
  for (const std::string& name : first.allocator().config().without_effect) {
    result.warnings.push_back(fmt::format("setting {} changes no device memory", name));
  }
  if (const auto why = info_.find("partial"); why != info_.end()) {
    result.warnings.push_back(why->second);
  }
  if (const auto it = info_.find("private_pools"); it != info_.end()) {
    result.warnings.push_back(
        fmt::format("the run had private pools ({}: CUDA graphs or MemPools), which recordings do "
                    "not tell apart: all is simulated as one pool, and may reserve less",
                    it->second));
  }
  return result;
}

// Facts may be written as late as the end of a run, and a program may change those of its beginning,
// so all of the recording is read for them.
Result<RunInfo> facts_of(const SourceOpener& open) {
  Result<std::unique_ptr<Source>> source = open();
  if (!source.ok()) return source.status();
  Result<TraceReader> all = TraceReader::open(std::move(source).value());
  if (!all.ok()) return all.status();
  for (;;) {
    const Result<std::span<const Event>> events = all->next();
    if (!events.ok()) return events.status();
    if (events->empty()) return all->info();
  }
}

Result<SimulationResult> simulate_recording(std::unique_ptr<Source> source,
                                            const SourceOpener& open,
                                            const SimulateOptions& options) {
  Result<TraceReader> reader = TraceReader::open(std::move(source));
  if (!reader.ok()) return reader.status();
  const Result<RunInfo> info = facts_of(open);
  if (!info.ok()) return info.status();
  Simulator simulator(options, reader->dictionary(), *info);
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
      AllocatorConfig::parse(options.conf.value_or(""), options.torch.value_or(TorchVersion{}));
  if (!config.ok()) return config.status();
  Result<std::unique_ptr<Source>> source = open();
  if (!source.ok()) return source.status();
  auto peeked = std::make_unique<PeekedSource>(std::move(source).value());
  const Result<std::span<const std::byte>> start = peeked->peek(256);
  if (!start.ok()) return start.status();
  const FileKind kind = kind_of_file(*start);
  if (kind != FileKind::kCsv && kind != FileKind::kPickle) {
    return simulate_recording(std::move(peeked), open, options);
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
