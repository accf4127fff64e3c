#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <unordered_map>

#include <peakline/advice.h>
#include <peakline/replay.h>

#include "allocator/run_settings.h"
#include "allocator/session.h"

namespace peakline {
namespace {

constexpr std::size_t kMost = 3;
constexpr double kWorthIt = 0.01;
constexpr double kAsRecorded = 0.02;
constexpr std::string_view kForeach = "aten::_foreach_";
// Written by who records: optimizers that run as foreach and have a fused implementation.
constexpr const char* kFusable = "fusable_optimizers";
constexpr const char* kExpandable = "expandable_segments:True";

// The recording's allocations, but without the temporaries of a foreach optimizer if `fused`. What
// turns out to outlive the optimizer's step was no temporary, and is allocated at its end.
class Variant {
 public:
  Variant(const AllocatorConfig& config, bool fused)
      : session_(config, DriverOptions{}, std::nullopt), fused_(fused) {}

  void alloc(const Now& now, const Block& block, Bytes requested) {
    if (fused_ && block.birth.era == Era::kOptimizer &&
        now.dictionary.op(block.op).starts_with(kForeach)) {
      left_out_[block.id.raw()] = {requested, block.stream};
    } else {
      session_.alloc(block.id, requested, block.stream);
    }
  }
  void free(const Block& block) {
    if (left_out_.erase(block.id.raw()) == 0) session_.free(block.id);
  }
  void optimizer_ended() {
    for (const auto& [id, block] : left_out_) {
      session_.alloc(BlockId(id), block.requested, block.stream);
    }
    left_out_.clear();
  }
  void other(const Event& event) {
    if (const auto* use = std::get_if<StreamUse>(&event.body)) {
      if (!left_out_.contains(use->block.raw())) session_.stream_use(use->block, use->stream);
    } else if (const auto* done = std::get_if<FreeCompleted>(&event.body)) {
      if (!left_out_.contains(done->block.raw())) session_.free_completed(done->block);
    }
  }
  void empty_cache() { session_.empty_cache(); }
  void finish() { session_.finish(); }
  [[nodiscard]] Bytes peak() const {
    return Bytes(session_.allocator().stats().reserved_bytes[0].peak);
  }

 private:
  struct LeftOut {
    Bytes requested;
    StreamId stream;
  };

  Session session_;
  bool fused_;
  std::unordered_map<std::uint64_t, LeftOut> left_out_;
};

// What was tried on one device: as recorded, and one change after another.
class DeviceAdvice final : public Pass {
 public:
  explicit DeviceAdvice(DeviceId device) : device_(device) {}

  void add(const AllocatorConfig& config, bool fused) {
    variants_.push_back(std::make_unique<Variant>(config, fused));
  }
  [[nodiscard]] Bytes peak(std::size_t variant) const { return variants_[variant]->peak(); }

  void on_alloc(const Now& now, const Block& block) override {
    if (block.device != device_) return;
    const Bytes requested = block.requested > Bytes{} ? block.requested : block.bytes;
    if (requested <= Bytes{}) return;
    for (const auto& variant : variants_) variant->alloc(now, block, requested);
  }
  void on_free(const Now&, const Block& block, CategoryId) override {
    if (block.device != device_) return;
    for (const auto& variant : variants_) variant->free(block);
  }
  void on_other(const Now&, const Event& event) override {
    if (const auto* empty = std::get_if<EmptyCache>(&event.body)) {
      if (empty->device != device_) return;
      for (const auto& variant : variants_) variant->empty_cache();
    } else if (const auto* end = std::get_if<PhaseEnd>(&event.body)) {
      if (end->phase != Phase::kOptimizer) return;
      for (const auto& variant : variants_) variant->optimizer_ended();
    } else {
      for (const auto& variant : variants_) variant->other(event);
    }
  }
  void on_reserved(const Now& now, DeviceId device) override {
    if (device == device_) recorded_ = std::max(recorded_, now.ledger.totals(device).reserved);
  }
  void finish(const Now&) override {
    for (const auto& variant : variants_) variant->finish();
  }

  // Whether the simulation reserves what the run did, as far as the recording knows: only then does
  // it prove anything about the run.
  [[nodiscard]] bool holds() const {
    if (recorded_ == Bytes{}) return true;
    const auto off = static_cast<double>((peak(0) - recorded_).raw());
    return std::abs(off) <= kAsRecorded * static_cast<double>(recorded_.raw());
  }

 private:
  DeviceId device_;
  Bytes recorded_;  // the highest that the recording tells
  std::vector<std::unique_ptr<Variant>> variants_;
};

// A change that is tried.
struct Change {
  AllocatorConfig config;
  bool fused = false;
  std::string what;
  std::string why;
  std::string command;
};

Result<TraceReader> reader_of(const SourceOpener& open) {
  Result<std::unique_ptr<Source>> source = open();
  if (!source.ok()) return source.status();
  return TraceReader::open(std::move(source).value());
}

// Facts may be written as late as the end of a run. Empty when there are too many events.
Result<std::optional<RunInfo>> facts_of(const SourceOpener& open, std::uint64_t most) {
  Result<TraceReader> reader = reader_of(open);
  if (!reader.ok()) return reader.status();
  std::uint64_t count = 0;
  for (;;) {
    const Result<std::span<const Event>> events = reader->next();
    if (!events.ok()) return events.status();
    if (events->empty()) return std::optional(reader->info());
    count += events->size();
    if (count > most) return std::optional<RunInfo>();
  }
}

// The first is no change: what is recorded. Empty where the run's settings cannot be simulated.
std::vector<Change> changes_for(const RunInfo& info) {
  const TorchVersion torch = allocator_release(info);
  const auto conf = info.find("allocator_conf");
  const std::string base = conf == info.end() ? "" : conf->second;
  Result<AllocatorConfig> config = AllocatorConfig::parse(base, torch);
  if (!config.ok()) return {};
  std::vector<Change> changes{{*config, false, "", "", ""}};
  if (const auto names = info.find(kFusable); names != info.end() && !names->second.empty()) {
    changes.push_back(
        {*config, true, "fused " + names->second,
         "foreach, which torch takes by itself, holds temporaries as large as the parameters",
         fmt::format("torch.optim.{}(..., fused=True)", names->second)});
  }
  if (!config->expandable_segments) {
    const std::string joined = base.empty() ? kExpandable : base + "," + kExpandable;
    if (const Result<AllocatorConfig> other = AllocatorConfig::parse(joined, torch); other.ok()) {
      changes.push_back({*other, false, kExpandable,
                         "segments that grow leave fewer holes between blocks",
                         "PYTORCH_ALLOC_CONF=" + joined});
    }
  }
  return changes;
}

// A pass for each device that appears.
class Advisor {
 public:
  Advisor(const Dictionary& dictionary, const std::vector<Change>& changes)
      : dictionary_(dictionary), changes_(changes), replay_(dictionary) {}

  void on(const Event& event) {
    while (known_ < dictionary_.device_count()) add_device();
    replay_.on(event);
  }

  [[nodiscard]] std::vector<Saving> finish() {
    replay_.finish();
    const DeviceAdvice* device = nullptr;
    for (const auto& one : devices_) {
      if (device == nullptr || one->peak(0) > device->peak(0)) device = one.get();
    }
    std::vector<Saving> savings;
    if (device == nullptr || !device->holds()) return savings;
    const Bytes before = device->peak(0);
    for (std::size_t i = 1; i < changes_.size(); ++i) {
      const Bytes after = device->peak(i);
      const auto saved = static_cast<double>((before - after).raw());
      if (saved < kWorthIt * static_cast<double>(before.raw()) || saved <= 0) continue;
      savings.push_back({changes_[i].what, changes_[i].why, changes_[i].command, before, after});
    }
    std::ranges::stable_sort(savings, {}, &Saving::after);
    savings.resize(std::min(savings.size(), kMost));
    return savings;
  }

 private:
  void add_device() {
    const DeviceId id(static_cast<std::uint8_t>(known_++));
    if (dictionary_.device(id).name == "cpu") return;
    auto device = std::make_unique<DeviceAdvice>(id);
    for (const Change& change : changes_) device->add(change.config, change.fused);
    replay_.add(*device);
    devices_.push_back(std::move(device));
  }

  const Dictionary& dictionary_;
  const std::vector<Change>& changes_;
  Replay replay_;
  std::size_t known_ = 0;
  std::vector<std::unique_ptr<DeviceAdvice>> devices_;
};

}  // namespace

Result<std::vector<Saving>> advise(const SourceOpener& open, const AdviceOptions& options) {
  const Result<std::optional<RunInfo>> info = facts_of(open, options.most_events);
  if (!info.ok()) return info.status();
  if (!*info) return std::vector<Saving>{};
  const std::vector<Change> changes = changes_for(**info);
  if (changes.size() < 2) return std::vector<Saving>{};
  Result<TraceReader> reader = reader_of(open);
  if (!reader.ok()) return reader.status();
  Advisor advisor(reader->dictionary(), changes);
  for (;;) {
    const Result<std::span<const Event>> events = reader->next();
    if (!events.ok()) return events.status();
    if (events->empty()) return advisor.finish();
    for (const Event& event : *events) advisor.on(event);
  }
}

}  // namespace peakline
