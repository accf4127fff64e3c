#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <memory>

#include <peakline/advice.h>
#include <peakline/replay.h>

#include "allocator/advice_facts.h"
#include "allocator/edit.h"
#include "allocator/run_settings.h"
#include "allocator/session.h"

namespace peakline {
namespace {

constexpr std::size_t kMost = 3;
constexpr double kWorthIt = 0.01;
// Of what is simulated roughly: some hundredths beside what the changed program reserves.
constexpr double kSurelyWorthIt = 0.1;
constexpr double kAsRecorded = 0.02;
// Written by who records: optimizers that run as foreach and have a fused implementation.
constexpr const char* kFusable = "fusable_optimizers";
constexpr const char* kExpandable = "expandable_segments:True";

// The recording's allocations as one change would have them.
class Variant {
 public:
  Variant(const AllocatorConfig& config, std::unique_ptr<Edit> edit)
      : session_(config, DriverOptions{}, std::nullopt), edit_(std::move(edit)) {}

  [[nodiscard]] Session& session() noexcept { return session_; }
  [[nodiscard]] Edit& edit() noexcept { return *edit_; }
  void other(const Event& event) {
    if (const auto* use = std::get_if<StreamUse>(&event.body)) {
      if (edit_->has(use->block)) session_.stream_use(use->block, use->stream);
    } else if (const auto* done = std::get_if<FreeCompleted>(&event.body)) {
      if (edit_->has(done->block)) session_.free_completed(done->block);
    }
  }
  [[nodiscard]] bool holds() const { return edit_->holds(); }
  [[nodiscard]] Bytes peak() const {
    return Bytes(session_.allocator().stats().reserved_bytes[0].peak);
  }

 private:
  Session session_;
  std::unique_ptr<Edit> edit_;
};

// What was tried on one device: as recorded, and one change after another.
class DeviceAdvice final : public Pass {
 public:
  explicit DeviceAdvice(DeviceId device) : device_(device) {}

  void add(const AllocatorConfig& config, std::unique_ptr<Edit> edit) {
    variants_.push_back(std::make_unique<Variant>(config, std::move(edit)));
  }
  [[nodiscard]] Bytes peak(std::size_t variant) const { return variants_[variant]->peak(); }
  [[nodiscard]] bool holds(std::size_t variant) const { return variants_[variant]->holds(); }

  void on_alloc(const Now& now, const Block& block) override {
    if (block.device != device_) return;
    const Bytes requested = block.requested > Bytes{} ? block.requested : block.bytes;
    if (requested <= Bytes{}) return;
    for_each([&](Session& to, Edit& edit) { edit.alloc(to, now, block, requested); });
  }
  void on_free(const Now& now, const Block& block, CategoryId) override {
    if (block.device != device_) return;
    for_each([&](Session& to, Edit& edit) { edit.free(to, now, block); });
  }
  void on_module_enter(const Now& now, const ModuleFrame& frame) override {
    for_each([&](Session& to, Edit& edit) { edit.module_enter(to, now, frame); });
  }
  void on_module_leave(const Now& now, const ModuleFrame& frame) override {
    for_each([&](Session& to, Edit& edit) { edit.module_leave(to, now, frame); });
  }
  void on_other(const Now& now, const Event& event) override {
    if (const auto* empty = std::get_if<EmptyCache>(&event.body)) {
      if (empty->device != device_) return;
      for_each([](Session& to, Edit&) { to.empty_cache(); });
    } else if (const auto* begin = std::get_if<PhaseBegin>(&event.body)) {
      for_each([&](Session& to, Edit& edit) { edit.phase_begin(to, now, begin->phase); });
    } else if (const auto* end = std::get_if<PhaseEnd>(&event.body)) {
      for_each([&](Session& to, Edit& edit) { edit.phase_end(to, now, end->phase); });
    } else {
      for (const auto& variant : variants_) variant->other(event);
    }
  }
  void on_reserved(const Now& now, DeviceId device) override {
    if (device == device_) recorded_ = std::max(recorded_, now.ledger.totals(device).reserved);
  }
  void finish(const Now&) override {
    for_each([](Session& to, Edit&) { to.finish(); });
  }

  // Whether the simulation reserves what the run did, as far as the recording knows: only then does
  // it prove anything about the run.
  [[nodiscard]] bool is_as_recorded() const {
    if (recorded_ == Bytes{}) return true;
    const auto off = static_cast<double>((peak(0) - recorded_).raw());
    return std::abs(off) <= kAsRecorded * static_cast<double>(recorded_.raw());
  }

 private:
  template <class F>
  void for_each(F&& act) {
    for (const auto& variant : variants_) act(variant->session(), variant->edit());
  }

  DeviceId device_;
  Bytes recorded_;  // the highest that the recording tells
  std::vector<std::unique_ptr<Variant>> variants_;
};

using MakeEdit = std::function<std::unique_ptr<Edit>(DeviceId)>;

std::unique_ptr<Edit> no_edit(DeviceId) { return std::make_unique<Edit>(); }

// A change that is tried.
struct Change {
  AllocatorConfig config;
  MakeEdit edit;
  std::string what;
  std::string why;
  std::string command;
  double worth_it = kWorthIt;  // share that it must save
};

Result<TraceReader> reader_of(const SourceOpener& open) {
  Result<std::unique_ptr<Source>> source = open();
  if (!source.ok()) return source.status();
  return TraceReader::open(std::move(source).value());
}

std::string fact(const RunInfo& info, const char* name) {
  const auto found = info.find(name);
  return found == info.end() ? "" : found->second;
}

// Where in the script a line is to be pasted, behind it.
std::string remark(const std::string& place) { return place.empty() ? "" : "  # " + place; }

// "AdamW, SGD"; nothing else, since it becomes code.
bool are_classes(const std::string& names) {
  return !names.empty() && std::ranges::all_of(names, [](unsigned char c) {
    return c >= 0x80 || std::isalnum(c) != 0 || c == '_' || c == ',' || c == ' ';
  });
}

void add_optimizers(std::vector<Change>& changes, const AllocatorConfig& config,
                    const AdviceFacts& facts) {
  if (const std::string names = fact(facts.info, kFusable); are_classes(names)) {
    changes.push_back(
        {config, [](DeviceId) { return edit_fused(); }, "fused " + names,
         "foreach, which torch takes by itself, holds temporaries as large as the parameters",
         fmt::format("torch.optim.{}(..., fused=True)", names)});
  }
  if (facts.gradients.empty()) return;
  changes.push_back({config, edit_zeroed_after_step, "zero_grad() right after the optimizer's step",
                     "gradients of the last step are alive in forward",
                     "optimizer.step(); optimizer.zero_grad()"});
  if (facts.reads_all_gradients || facts.shards) return;
  const ScriptOptimizer& both = facts.with_optimizer;
  changes.push_back(
      {config, [&facts](DeviceId) { return edit_updated_in_backward(facts); },
       "the optimizer in backward",
       "each parameter is updated as soon as its gradient is there, which is then freed",
       fmt::format(
           R"(import peakline; peakline.checkpoint({}, {{"schema_version": 1, "optimizer": )"
           R"({{"in_backward": True}}}}, {}){})",
           both.model, both.optimizer, remark(both.place)),
       kSurelyWorthIt});
}

void add_recomputation(std::vector<Change>& changes, const AllocatorConfig& config,
                       const AdviceFacts& facts) {
  if (facts.trained_calls.empty() || facts.recomputes || facts.shards) return;
  const ScriptModel& model = facts.model;
  const std::vector<std::string> names = name_ranges(facts.layer_names);
  changes.push_back(
      {config, [&facts](DeviceId) { return edit_recomputed(facts); },
       fmt::format("recomputing {}", fmt::join(names, ", ")),
       "their forward runs again in backward; `peakline plan` finds what costs least",
       fmt::format(
           R"(import peakline; peakline.checkpoint({}, {{"schema_version": 1, "activations": )"
           R"([{{"modules": ["{}"], "policy": "recompute"}}]}}){})",
           model.name, fmt::join(names, "\", \""), remark(model.place)),
       kSurelyWorthIt});
}

// The first is no change: what is recorded. Empty where the run's settings cannot be simulated.
std::vector<Change> changes_for(const AdviceFacts& facts) {
  const TorchVersion torch = allocator_release(facts.info);
  const std::string base = fact(facts.info, "allocator_conf");
  Result<AllocatorConfig> config = AllocatorConfig::parse(base, torch);
  if (!config.ok()) return {};
  std::vector<Change> changes{{*config, no_edit, "", "", ""}};
  add_optimizers(changes, *config, facts);
  add_recomputation(changes, *config, facts);
  if (!config->expandable_segments) {
    const std::string joined = base.empty() ? kExpandable : base + "," + kExpandable;
    if (const Result<AllocatorConfig> other = AllocatorConfig::parse(joined, torch); other.ok()) {
      changes.push_back({*other, no_edit, kExpandable,
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
    if (device == nullptr || !device->is_as_recorded()) return savings;
    const Bytes before = device->peak(0);
    for (std::size_t i = 1; i < changes_.size(); ++i) {
      if (!device->holds(i)) continue;
      const Bytes after = device->peak(i);
      const auto saved = static_cast<double>((before - after).raw());
      if (saved < changes_[i].worth_it * static_cast<double>(before.raw()) || saved <= 0) continue;
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
    for (const Change& change : changes_) device->add(change.config, change.edit(id));
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
  Result<TraceReader> first = reader_of(open);
  if (!first.ok()) return first.status();
  const Result<std::optional<AdviceFacts>> facts = read_advice_facts(*first, options.most_events);
  if (!facts.ok()) return facts.status();
  if (!*facts) return std::vector<Saving>{};
  const std::vector<Change> changes = changes_for(**facts);
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
