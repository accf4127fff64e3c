#include "live_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

namespace peakline::cli {
namespace {

struct Alive {
  std::vector<std::pair<std::string, Bytes>> categories;
  std::vector<std::pair<std::string, Bytes>> modules;
};

std::vector<std::pair<std::string, Bytes>> largest_first(
    const std::map<std::string, Bytes>& by_name) {
  std::vector<std::pair<std::string, Bytes>> rows(by_name.begin(), by_name.end());
  std::ranges::stable_sort(rows, std::greater{}, &std::pair<std::string, Bytes>::second);
  return rows;
}

// What is alive now. What a block is for is judged as if the run ended here.
Alive alive_now(const Replay& replay, const Dictionary& dictionary, DeviceId device) {
  std::map<std::string, Bytes> categories;
  std::map<ModuleId, Bytes> by_module;
  replay.ledger().for_each_live([&](const Block& block) {
    if (block.device != device) return;
    const CategoryId category = resolve_category(block, replay.context(), true);
    categories[dictionary.category_label(category)] += block.bytes;
    by_module[block.module] += block.bytes;
  });
  std::map<std::string, Bytes> modules;
  for (const auto& [module, bytes] : by_module) {
    const std::string& path = dictionary.module(module).path;
    modules[path.empty() ? "(outside modules)" : path] += bytes;
  }
  return {largest_first(categories), largest_first(modules)};
}

std::string sparkline(const std::vector<Bytes>& history, Bytes peak, std::size_t columns) {
  static constexpr std::array<std::string_view, 9> kCells{" ", "▁", "▂", "▃", "▄",
                                                          "▅", "▆", "▇", "█"};
  const std::size_t first = history.size() > columns ? history.size() - columns : 0;
  std::string out;
  for (std::size_t i = first; i < history.size(); ++i) {
    out += kCells[static_cast<std::size_t>(std::clamp(share_of(history[i], peak), 0.0, 1.0) * 8)];
  }
  return out;
}

std::string rows_text(const std::vector<std::pair<std::string, Bytes>>& rows, Bytes whole,
                      std::size_t most) {
  std::string out;
  for (std::size_t i = 0; i < std::min(most, rows.size()); ++i) {
    const double share = share_of(rows[i].second, whole);
    const std::string name = shorten(printable(rows[i].first), 34);
    out += fmt::format("  {}{} {:>10}  {:>5.1f}%  {}\n", name, std::string(34 - width(name), ' '),
                       format_size(rows[i].second), 100 * share, bar(share, 20));
  }
  return out;
}

}  // namespace

void LivePass::observe(const Now& now, DeviceId id) {
  if (id.raw() >= devices_.size()) devices_.resize(id.raw() + std::size_t{1});
  while (now.event / width_ >= kHistory) {
    width_ *= 2;
    for (Device& device : devices_) {
      for (std::size_t i = 0; 2 * i < device.history.size(); ++i) {
        const bool pair = 2 * i + 1 < device.history.size();
        device.history[i] =
            std::max(device.history[2 * i], device.history[pair ? 2 * i + 1 : 2 * i]);
      }
      device.history.resize((device.history.size() + 1) / 2);
    }
  }
  Device& device = devices_[id.raw()];
  const DeviceTotals& totals = now.ledger.totals(id);
  device.peak = std::max(device.peak, totals.allocated);
  device.peak_reserved = std::max(device.peak_reserved, totals.reserved);
  device.history.resize(static_cast<std::size_t>(now.event / width_) + 1,
                        device.history.empty() ? Bytes{} : totals.allocated);
  device.history.back() = std::max(device.history.back(), totals.allocated);
}

int main_device(const LivePass& live, const Dictionary& dictionary) {
  int best = -1;
  std::pair<bool, Bytes> best_rank;
  for (std::size_t i = 0; i < live.devices().size(); ++i) {
    const Bytes peak = live.devices()[i].peak;
    if (peak == Bytes{}) continue;
    const DeviceId id(static_cast<std::uint8_t>(i));
    const std::pair rank(!dictionary.device(id).name.starts_with("cpu"), peak);
    if (best >= 0 && rank <= best_rank) continue;
    best = static_cast<int>(i);
    best_rank = rank;
  }
  return best;
}

std::string live_line(const Replay& replay, const LivePass& live, const Dictionary& dictionary) {
  std::string out = counted(replay.event_count(), "event") + ", " +
                    counted(replay.context().progress().steps, "step");
  const int main = main_device(live, dictionary);
  if (main < 0) return out;
  const DeviceId id(static_cast<std::uint8_t>(main));
  const DeviceTotals& totals = replay.ledger().totals(id);
  out += fmt::format("; {} {} peak, {} now", printable(dictionary.device(id).name),
                     format_size(live.devices()[id.raw()].peak), format_size(totals.allocated));
  if (totals.knows_reserved) out += fmt::format(", {} reserved", format_size(totals.reserved));
  if (totals.ooms > 0) out += ", out of memory " + counted(totals.ooms, "time");
  return out;
}

std::string live_screen(const std::string& name, const Replay& replay, const LivePass& live,
                        const Dictionary& dictionary, std::size_t rows, const Paint& paint) {
  std::string out =
      shorten(fmt::format("{}  step {}  {}  {}", printable(name),
                          grouped(replay.context().progress().steps + std::uint64_t{1}),
                          counted(replay.event_count(), "event"), format_time(replay.last_time())),
              kColumns) +
      "\n";
  const int main = main_device(live, dictionary);
  if (main < 0) return out + "\nNothing is allocated yet.\n";
  const DeviceId id(static_cast<std::uint8_t>(main));
  const DeviceTotals& totals = replay.ledger().totals(id);
  const LivePass::Device& device = live.devices()[id.raw()];
  const DeviceInfo& info = dictionary.device(id);
  out += "\n" + paint.bold(printable(info.name)) + "  " + printable(info.model) + "\n";
  out += fmt::format("  Allocated now    {:>10}  {}\n", format_size(totals.allocated),
                     bar(share_of(totals.allocated, device.peak), 40));
  out += fmt::format("  Peak so far      {:>10}\n", format_size(device.peak));
  if (totals.knows_reserved) {
    out += fmt::format("  Reserved now     {:>10}  peak {}\n", format_size(totals.reserved),
                       format_size(device.peak_reserved));
  }
  out += fmt::format("  {}\n", sparkline(device.history, device.peak, 76));
  const Alive alive = alive_now(replay, dictionary, id);
  out += "\n" + paint.bold("By category now") + "\n" +
         rows_text(alive.categories, totals.allocated, 8);
  const std::size_t used = static_cast<std::size_t>(std::count(out.begin(), out.end(), '\n')) + 3;
  out += "\n" + paint.bold("Largest modules now") + "\n" +
         rows_text(alive.modules, totals.allocated, rows > used ? rows - used : 0);
  return out;
}

}  // namespace peakline::cli
