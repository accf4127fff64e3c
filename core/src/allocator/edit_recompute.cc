// Layers that run forward again in backward. What a layer allocated in forward is written down; all
// but its result is dropped when it is left, and when its backward begins the same is allocated again.
#include <optional>
#include <unordered_map>
#include <vector>

#include <peakline/category.h>

#include "allocator/advice_facts.h"
#include "allocator/edit.h"

namespace peakline {
namespace {

struct Entry {
  BlockId block;
  Bytes requested;
  StreamId stream;
  bool is_free = false;
};

struct Call {
  std::uint64_t entered = 0;
  ThreadId thread;
  std::vector<Entry> log;
  std::vector<BlockId> born;
  std::optional<BlockId> result;
};

bool stays(const Block& block) {
  return block.label != category::kUnlabelled && block.label != category::kActivation &&
         block.label != category::kTemp;
}

class Recomputed final : public Edit {
 public:
  explicit Recomputed(const AdviceFacts& facts) : facts_(facts) {}

  void alloc(Session& session, const Now&, const Block& block, Bytes requested) override {
    session.alloc(block.id, requested, block.stream);
    if (!open_ || block.birth.thread != open_->thread) return;
    open_->log.push_back({block.id, requested, block.stream});
    open_->born.push_back(block.id);
  }

  void free(Session& session, const Now&, const Block& block) override {
    const auto dropped = dropped_.find(block.id.raw());
    if (dropped != dropped_.end()) {
      if (dropped->second) session.free(*dropped->second);
      dropped_.erase(dropped);
      return;
    }
    session.free(block.id);
    if (open_ && block.birth.thread == open_->thread && block.birth.event > open_->entered) {
      open_->log.push_back({block.id, {}, {}, true});
    }
  }

  void module_enter(Session& session, const Now& now, const ModuleFrame& frame) override {
    if (frame.pass == ModulePass::kForward && facts_.trained_calls.contains(frame.enter_event)) {
      if (!open_) open_ = Call{frame.enter_event, now.thread, {}, {}, {}};
    } else if (frame.pass == ModulePass::kBackward) {
      const auto calls = waiting_.find(frame.module.raw());
      if (calls == waiting_.end() || calls->second.empty()) return;
      again(session, frame.module, calls->second.back());
      calls->second.pop_back();
    }
  }

  void module_leave(Session& session, const Now& now, const ModuleFrame& frame) override {
    if (frame.pass == ModulePass::kBackward) {
      const auto result = results_.find(frame.module.raw());
      if (result == results_.end()) return;
      session.free(result->second);
      results_.erase(result);
      return;
    }
    if (!open_ || frame.enter_event != open_->entered) return;
    open_->result = result_of(now.ledger);
    for (const BlockId id : open_->born) {
      const Block* block = now.ledger.find(id);
      if (block == nullptr || id == open_->result || stays(*block)) continue;
      session.free(id);
      dropped_[id.raw()] = std::nullopt;
    }
    waiting_[frame.module.raw()].push_back(std::move(*open_));
    open_.reset();
  }

  [[nodiscard]] bool has(BlockId block) const override { return !dropped_.contains(block.raw()); }
  [[nodiscard]] bool holds() const override { return recomputed_ > 0; }

 private:
  // The largest that the last op made which made anything that is left.
  [[nodiscard]] std::optional<BlockId> result_of(const Ledger& ledger) const {
    const Block* found = nullptr;
    for (const BlockId id : open_->born) {
      const Block* block = ledger.find(id);
      if (block == nullptr || stays(*block)) continue;
      const bool later = found == nullptr || block->birth.op_call > found->birth.op_call;
      const bool larger = found != nullptr && block->birth.op_call == found->birth.op_call &&
                          block->bytes > found->bytes;
      if (later || larger) found = block;
    }
    return found == nullptr ? std::nullopt : std::optional(found->id);
  }

  // A recomputation ends with the last that backward needs. Nobody knows whether the layer itself
  // needs its result, so that is made again, too.
  void again(Session& session, ModuleId module, const Call& call) {
    std::size_t end = call.log.size();
    while (end > 0 && !needed(call.log[end - 1], call)) --end;
    std::unordered_map<std::uint64_t, BlockId> made;
    for (std::size_t i = 0; i < end; ++i) {
      const Entry& entry = call.log[i];
      if (entry.is_free) {
        const auto found = made.find(entry.block.raw());
        if (found == made.end()) continue;
        session.free(found->second);
        made.erase(found);
        continue;
      }
      const BlockId id(kOwnIds + ++recomputed_);
      session.alloc(id, entry.requested, entry.stream);
      if (const auto dropped = dropped_.find(entry.block.raw()); dropped != dropped_.end()) {
        dropped->second = id;
      } else if (entry.block == call.result && !results_.contains(module.raw())) {
        results_.emplace(module.raw(), id);
      } else {
        made[entry.block.raw()] = id;
      }
    }
    for (const auto& [_, id] : made) session.free(id);
  }

  [[nodiscard]] bool needed(const Entry& entry, const Call& call) const {
    return !entry.is_free && (dropped_.contains(entry.block.raw()) || entry.block == call.result);
  }

  static constexpr std::uint64_t kOwnIds = std::uint64_t{1} << 62;  // that no recording has

  const AdviceFacts& facts_;
  std::optional<Call> open_;
  std::unordered_map<std::uint32_t, std::vector<Call>> waiting_;       // for backward, by module
  std::unordered_map<std::uint64_t, std::optional<BlockId>> dropped_;  // and what stands for it
  std::unordered_map<std::uint32_t, BlockId> results_;                 // made again, by module
  std::uint64_t recomputed_ = 0;
};

}  // namespace

std::unique_ptr<Edit> edit_recomputed(const AdviceFacts& facts) {
  return std::make_unique<Recomputed>(facts);
}

}  // namespace peakline
