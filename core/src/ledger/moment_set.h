// What was alive at one moment, with categories that only the future knows.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <peakline/replay.h>

namespace peakline {

// A block that was alive at the moment, and what it turned out to be.
struct Held {
  Bytes bytes;
  CategoryId category;
  ModuleId module;
  OpId op;
  Certainty certainty = Certainty::kExact;
  CallStack call;
  RegionId region;
};

// Follows one device; give it that device's blocks only. The moment may move forward any number of
// times at no cost: nothing is copied when it is set. Blocks that were alive then are remembered as
// they die; the rest are in the ledger when the stream is over.
class MomentSet {
 public:
  explicit MomentSet(DeviceId device, std::uint64_t moment = 0)
      : device_(device), moment_(moment) {}

  // The moment is now, after this event.
  void mark(const Now& now) {
    moment_ = now.event;
    departed_.clear();
  }

  void on_free(const Now& now, const Block& block, CategoryId category) {
    if (block.birth.event <= moment_ && moment_ < now.event) {
      departed_.push_back(held(block, category));
    }
  }

  // Everything that was alive at the moment. Call it once, when the stream is over.
  [[nodiscard]] std::vector<Held> finish(const Now& now) {
    std::vector<Held> all = std::move(departed_);
    add_living(all, now);
    return all;
  }

  // The same in the middle of the stream: what still lives counts as it looks now.
  [[nodiscard]] std::vector<Held> so_far(const Now& now) const {
    std::vector<Held> all = departed_;
    add_living(all, now);
    return all;
  }

 private:
  static Held held(const Block& block, CategoryId category) {
    return {block.bytes,     category,         block.module,      block.op,
            block.certainty, block.birth.call, block.birth.region};
  }
  void add_living(std::vector<Held>& all, const Now& now) const {
    now.ledger.for_each_live([&](const Block& block) {
      if (block.device != device_ || block.birth.event > moment_) return;
      all.push_back(held(block, resolve_category(block, now.context, true)));
    });
  }

  DeviceId device_;
  std::uint64_t moment_;
  std::vector<Held> departed_;
};

}  // namespace peakline
