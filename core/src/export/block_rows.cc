#include <algorithm>
#include <optional>
#include <unordered_map>
#include <vector>

#include "export/rows.h"
#include "ledger/era_name.h"
#include "report/categories.h"

namespace peakline {
namespace {

// A block's category is known when it dies, so rows come in order of death.
class BlockRows : public Pass {
 public:
  BlockRows(const Summary& summary, std::int64_t rank, TableWriter& writer)
      : summary_(summary), rank_(rank), writer_(writer) {}

  void on_alloc(const Now& now, const Block& block) override {
    born_.insert_or_assign(block.id.raw(), now.time);
  }
  void on_free(const Now& now, const Block& block, CategoryId category) override {
    write(now, block, category, true);
    born_.erase(block.id.raw());
  }
  void finish(const Now& now) override {
    std::vector<const Block*> alive;
    alive.reserve(now.ledger.live_count());
    now.ledger.for_each_live([&](const Block& block) { alive.push_back(&block); });
    std::ranges::sort(alive, {}, [](const Block* block) { return block->birth.event; });
    for (const Block* block : alive) {
      write(now, *block, resolve_category(*block, now.context, true), false);
    }
  }

 private:
  void write(const Now& now, const Block& block, CategoryId category, bool dies) {
    const Dictionary& words = now.dictionary;
    const CategoryId known = known_category(words, category);
    const std::string& device = words.device(block.device).name;
    row_.number(rank_).count(block.id.raw()).text(device).count(block.stream.raw());
    row_.address(block.address).bytes(block.bytes).bytes(block.requested);
    row_.text(words.category(words.top_level(known)).name).text(label(words, known));
    row_.text(words.module(block.module).path).text(words.op(block.op));
    row_.text(words.name(block.name)).text(era_name(block.birth.era));
    row_.count(std::uint64_t{block.birth.progress.steps} + 1);
    row_.text(kCertaintyNames[static_cast<std::size_t>(block.certainty)]);
    row_.count(block.birth.event);
    const auto born = born_.find(block.id.raw());
    born == born_.end() ? row_.nothing() : row_.time(born->second);
    dies ? row_.count(now.event).time(now.time) : row_.nothing().nothing();
    const std::uint64_t peak = peak_event(block.device, device);
    const bool at_peak = block.birth.event <= peak && (!dies || peak < now.event);
    row_.number(at_peak ? 1 : 0).write(writer_);
  }

  const std::string& label(const Dictionary& words, CategoryId id) {
    if (id.raw() >= labels_.size()) labels_.resize(id.raw() + std::size_t{1});
    std::string& text = labels_[id.raw()];
    if (text.empty()) text = words.category_label(id);
    return text;
  }

  std::uint64_t peak_event(DeviceId id, const std::string& name) {
    if (id.raw() >= peaks_.size()) peaks_.resize(id.raw() + std::size_t{1});
    std::optional<std::uint64_t>& peak = peaks_[id.raw()];
    if (!peak) {
      const auto found = std::ranges::find(summary_.devices, name, &DeviceSummary::name);
      peak = found == summary_.devices.end() ? 0 : found->peak_event;
    }
    return *peak;
  }

  const Summary& summary_;
  std::int64_t rank_;
  TableWriter& writer_;
  Row row_;
  std::unordered_map<std::uint64_t, TimeNs> born_;   // live blocks
  std::vector<std::string> labels_;                  // by category
  std::vector<std::optional<std::uint64_t>> peaks_;  // by device
};

}  // namespace

Status write_blocks(TraceReader& reader, const Summary& summary, std::int64_t rank,
                    TableWriter& writer) {
  BlockRows rows(summary, rank, writer);
  Replay replay(reader.dictionary());
  replay.add(rows);
  while (writer.status().ok()) {
    const Result<std::span<const Event>> events = reader.next();
    if (!events.ok()) return events.status();
    if (events->empty()) {
      replay.finish();
      break;
    }
    for (const Event& event : *events) replay.on(event);
  }
  return {};
}

}  // namespace peakline
