// Edits of the optimizer: fused, gradients that are gone after its step, and steps in backward.
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include <peakline/category.h>

#include "allocator/advice_facts.h"
#include "allocator/edit.h"

namespace peakline {
namespace {

constexpr std::string_view kForeach = "aten::_foreach_";

// What turns out to outlive the optimizer's step was no temporary, and is allocated at its end.
class Fused : public Edit {
 public:
  void alloc(Session& session, const Now& now, const Block& block, Bytes requested) override {
    if (block.birth.era == Era::kOptimizer && now.dictionary.op(block.op).starts_with(kForeach)) {
      left_out_[block.id.raw()] = {requested, block.stream};
    } else {
      session.alloc(block.id, requested, block.stream);
    }
  }
  void free(Session& session, const Now&, const Block& block) override {
    if (left_out_.erase(block.id.raw()) == 0) session.free(block.id);
  }
  void phase_end(Session& session, const Now&, Phase phase) override {
    if (phase != Phase::kOptimizer) return;
    for (const auto& [id, block] : left_out_) {
      session.alloc(BlockId(id), block.requested, block.stream);
    }
    left_out_.clear();
  }
  [[nodiscard]] bool has(BlockId block) const override { return !left_out_.contains(block.raw()); }

 private:
  struct LeftOut {
    Bytes requested;
    StreamId stream;
  };
  std::unordered_map<std::uint64_t, LeftOut> left_out_;
};

class ZeroedAfterStep final : public Edit {
 public:
  explicit ZeroedAfterStep(DeviceId device) : device_(device) {}

  void free(Session& session, const Now&, const Block& block) override {
    if (gone_.erase(block.id.raw()) == 0) session.free(block.id);
  }
  void phase_begin(Session&, const Now&, Phase phase) override {
    // Where gradients stay, the next ones are added to them: they cannot be gone.
    if (phase == Phase::kBackward && !gone_.empty()) stay_ = true;
  }
  void phase_end(Session& session, const Now& now, Phase phase) override {
    if (phase != Phase::kOptimizer) return;
    now.ledger.for_each_live([&](const Block& block) {
      if (block.device != device_ || block.label != category::kGradient) return;
      if (gone_.insert(block.id.raw()).second) session.free(block.id);
    });
  }
  [[nodiscard]] bool has(BlockId block) const override { return !gone_.contains(block.raw()); }
  [[nodiscard]] bool holds() const override { return !stay_; }

 private:
  DeviceId device_;
  std::unordered_set<std::uint64_t> gone_;
  bool stay_ = false;
};

// A gradient lives until one of another module comes: by then its parameter has been updated. The
// update of one parameter needs a temporary of its size.
class UpdatedInBackward final : public Fused {
 public:
  explicit UpdatedInBackward(const AdviceFacts& facts) : facts_(facts) {}

  void alloc(Session& session, const Now& now, const Block& block, Bytes requested) override {
    const bool comes =
        block.birth.era == Era::kBackward && facts_.gradients.contains(block.id.raw());
    if (comes && block.module != module_) update(session);
    Fused::alloc(session, now, block, requested);
    if (!comes) return;
    module_ = block.module;
    there_[block.id.raw()] = {requested, block.stream};
  }
  void free(Session& session, const Now& now, const Block& block) override {
    there_.erase(block.id.raw());
    if (gone_.erase(block.id.raw()) == 0) Fused::free(session, now, block);
  }
  void phase_begin(Session&, const Now&, Phase phase) override {
    // A second backward for one step adds to gradients.
    if (phase == Phase::kBackward && !gone_.empty()) stay_ = true;
  }
  void phase_end(Session& session, const Now& now, Phase phase) override {
    if (phase == Phase::kBackward) update(session);
    Fused::phase_end(session, now, phase);
  }
  [[nodiscard]] bool has(BlockId block) const override {
    return !gone_.contains(block.raw()) && Fused::has(block);
  }
  [[nodiscard]] bool holds() const override { return !stay_ && updates_ > 0; }

 private:
  struct There {
    Bytes requested;
    StreamId stream;
  };

  void update(Session& session) {
    for (const auto& [id, block] : there_) {
      const BlockId temporary(kOwnIds + ++updates_);
      session.alloc(temporary, block.requested, block.stream);
      session.free(temporary);
      session.free(BlockId(id));
      gone_.insert(id);
    }
    there_.clear();
  }

  static constexpr std::uint64_t kOwnIds = std::uint64_t{1} << 62;  // that no recording has

  const AdviceFacts& facts_;
  ModuleId module_;
  std::unordered_map<std::uint64_t, There> there_;  // gradients of `module_`
  std::unordered_set<std::uint64_t> gone_;          // and those that were used
  std::uint64_t updates_ = 0;
  bool stay_ = false;
};

}  // namespace

std::unique_ptr<Edit> edit_fused() { return std::make_unique<Fused>(); }

std::unique_ptr<Edit> edit_zeroed_after_step(DeviceId device) {
  return std::make_unique<ZeroedAfterStep>(device);
}

std::unique_ptr<Edit> edit_updated_in_backward(const AdviceFacts& facts) {
  return std::make_unique<UpdatedInBackward>(facts);
}

}  // namespace peakline
