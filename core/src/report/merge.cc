#include <algorithm>
#include <charconv>
#include <tuple>
#include <utility>

#include <peakline/merge.h>

namespace peakline {
namespace {

std::int64_t number(std::string_view text) {
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value >= 0 ? value : -1;
}

std::int64_t fact(const RunInfo& info, const char* key) {
  const auto found = info.find(key);
  return found == info.end() ? -1 : number(found->second);
}

bool is_cut(const Diagnostics& lost) {
  return lost.of(Loss::kTruncatedTail) > 0 || lost.of(Loss::kNoTrailer) > 0;
}

// Ties go to the lower rank, so that the order of files does not matter.
bool above(const RankUse& a, const RankUse& b) {
  return std::tuple(a.peak_allocated, b.rank) > std::tuple(b.peak_allocated, a.rank);
}

std::vector<Difference> sorted(std::vector<Difference> rows) {
  std::erase_if(rows, [](const Difference& row) { return row.worst == row.other; });
  std::stable_sort(rows.begin(), rows.end(), [](const Difference& a, const Difference& b) {
    return std::abs((a.worst - a.other).raw()) > std::abs((b.worst - b.other).raw());
  });
  return rows;
}

std::string others(std::uint64_t count) {
  return count > 1 ? " and " + std::to_string(count - 1) + " more" : "";
}

}  // namespace

bool RankSet::insert(std::int64_t rank) {
  auto after = stretches_.upper_bound(rank);
  const bool joins_after = after != stretches_.end() && after->first == rank + 1;
  if (after != stretches_.begin()) {
    const auto before = std::prev(after);
    if (rank < before->second) return false;
    if (before->second == rank) {
      before->second = joins_after ? after->second : rank + 1;
      if (joins_after) stretches_.erase(after);
      return true;
    }
  }
  const std::int64_t end = joins_after ? after->second : rank + 1;
  if (joins_after) stretches_.erase(after);
  stretches_.emplace(rank, end);
  return true;
}

std::uint64_t RankSet::size() const noexcept {
  std::int64_t count = 0;
  for (const auto& [first, end] : stretches_) count += end - first;
  return static_cast<std::uint64_t>(count);
}

std::int64_t RankSet::end() const noexcept {
  return stretches_.empty() ? 0 : stretches_.rbegin()->second;
}

std::string RankSet::missing(std::int64_t end) const {
  std::string text;
  std::int64_t next = 0;
  const auto gap = [&](std::int64_t until) {
    if (next >= until) return;
    if (!text.empty()) text += ", ";
    text += std::to_string(next);
    if (until - next > 1) text += "-" + std::to_string(until - 1);
  };
  for (const auto& [first, behind] : stretches_) {
    gap(std::min(first, end));
    next = std::max(next, behind);
  }
  gap(end);
  return text;
}

void RankMerge::add(RankUse use) {
  world_size_ = std::max(world_size_, use.world_size);
  if (use.rank >= 0 && !ranks_.insert(use.rank)) {
    if (twice_++ == 0) first_twice_ = use.file;
    return;
  }
  ++count_;
  sum_ += static_cast<double>(use.peak_allocated.raw());
  for (const NamedBytes& row : use.by_category) {
    category_sums_[row.name] += static_cast<double>(row.bytes.raw());
  }
  if (use.cut && cut_++ == 0) first_cut_ = use.file;
  if (use.ooms > 0) ++out_of_memory_;
  if (!lowest_ || above(*lowest_, use)) lowest_ = use;
  if (!worst_ || above(use, *worst_)) worst_ = std::move(use);
}

void RankMerge::add_unreadable(const std::string&, const Status& why) {
  if (unreadable_++ == 0) first_unreadable_ = why.message();
}

Bytes RankMerge::mean() const noexcept {
  return count_ == 0 ? Bytes{}
                     : Bytes(static_cast<std::int64_t>(sum_ / static_cast<double>(count_)));
}

std::vector<Difference> RankMerge::by_category() const {
  std::vector<Difference> rows;
  if (!worst_) return rows;
  std::map<std::string, Bytes> worst;
  for (const NamedBytes& row : worst_->by_category) worst[row.name] = row.bytes;
  for (const auto& [name, sum] : category_sums_) {
    const Bytes mean(static_cast<std::int64_t>(sum / static_cast<double>(count_)));
    rows.push_back({name, worst[name], mean});
  }
  return sorted(std::move(rows));
}

std::vector<Difference> RankMerge::by_module() const {
  std::vector<Difference> rows;
  if (!worst_ || !lowest_) return rows;
  std::map<std::string, Difference> found;
  for (const NamedBytes& row : worst_->modules) found[row.name].worst = row.bytes;
  for (const NamedBytes& row : lowest_->modules) found[row.name].other = row.bytes;
  for (auto& [name, row] : found) rows.push_back({name, row.worst, row.other});
  return sorted(std::move(rows));
}

std::int64_t RankMerge::world_size() const noexcept { return std::max(world_size_, ranks_.end()); }

std::uint64_t RankMerge::missing_count() const noexcept {
  return static_cast<std::uint64_t>(world_size()) - ranks_.size();
}

std::vector<std::string> RankMerge::warnings() const {
  std::vector<std::string> found;
  if (missing_count() > 0 && ranks_.size() > 0) {
    found.push_back("no recording of rank " + missing() + ", of " + std::to_string(world_size()));
  }
  if (cut_ > 0) {
    found.push_back(first_cut_ + others(cut_) +
                    ": cut off before the run ended, so its peak may have been higher");
  }
  if (unreadable_ > 0) found.push_back("left out: " + first_unreadable_ + others(unreadable_));
  if (twice_ > 0)
    found.push_back("left out: " + first_twice_ + others(twice_) + ": its rank was given before");
  return found;
}

std::int64_t rank_in_name(std::string_view path) {
  path = path.substr(path.rfind('/') + 1);
  const std::size_t last = path.rfind('.');
  if (last == std::string_view::npos || last == 0) return -1;
  const std::size_t before = path.rfind('.', last - 1);
  if (before == std::string_view::npos) return -1;
  return number(path.substr(before + 1, last - before - 1));
}

std::int64_t rank_of(const RunInfo& info, std::string_view path) {
  const std::int64_t said = fact(info, "rank");
  return said >= 0 ? said : rank_in_name(path);
}

Result<RankUse> read_rank(const std::string& path) {
  Result<std::unique_ptr<Source>> source = open_file_source(path);
  if (!source.ok()) return source.status();
  Result<TraceReader> reader = TraceReader::open(std::move(source).value());
  if (!reader.ok()) return reader.status();
  const Result<Summary> summary = summarize(*reader, {.timeline_points = 2});
  if (!summary.ok()) return summary.status();
  RankUse use;
  use.file = path;
  use.rank = rank_of(summary->info, path);
  use.world_size = fact(summary->info, "world_size");
  use.cut = is_cut(reader->diagnostics());
  if (const DeviceSummary* device = summary->main_device()) {
    use.device = device->name;
    use.peak_allocated = device->peak_allocated;
    use.peak_reserved = device->peak_reserved;
    use.ooms = device->ooms;
    use.peak_step = device->peak_step;
    use.peak_phase = device->peak_phase;
    use.peak_op = device->peak_op;
    use.peak_module = device->peak_module;
    use.by_category = device->by_category;
    for (const ModuleRow& row : device->modules) use.modules.push_back({row.path, row.peak});
  }
  return use;
}

}  // namespace peakline
