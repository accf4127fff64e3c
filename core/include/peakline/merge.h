// One view of the recordings of many ranks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <peakline/status.h>
#include <peakline/summary.h>
#include <peakline/units.h>

namespace peakline {

// What one rank's recording says about its main device.
struct RankUse {
  std::string file;
  std::int64_t rank = -1;        // -1: neither the recording nor its name says
  std::int64_t world_size = -1;  // likewise
  bool cut = false;              // the recording ends before the run did
  std::string device;
  Bytes peak_allocated;
  std::optional<Bytes> peak_reserved;
  std::uint64_t ooms = 0;
  std::uint32_t peak_step = 0;
  std::string peak_phase;
  std::string peak_op;
  std::string peak_module;
  std::vector<NamedBytes> by_category;
  std::vector<NamedBytes> modules;  // held at the peak by each with what is below it
};

// Numbers of a rank, seen as a set: gaps between them are few, whatever their count.
class RankSet {
 public:
  // False when it is there already.
  bool insert(std::int64_t rank);
  [[nodiscard]] std::uint64_t size() const noexcept;
  // What is missing of 0 to `end`-1, as "3, 7-12".
  [[nodiscard]] std::string missing(std::int64_t end) const;
  [[nodiscard]] std::int64_t end() const noexcept;  // one above the largest

 private:
  std::map<std::int64_t, std::int64_t> stretches_;  // first rank to one behind the last
};

// More than the ranks' average, or less.
struct Difference {
  std::string name;
  Bytes worst;
  Bytes other;
};

// Takes the ranks one after another and keeps a summary of all, the highest and the lowest.
// Memory grows with neither the number of ranks nor the length of recordings. Not thread-safe.
class RankMerge {
 public:
  void add(RankUse use);
  // A recording that could not be read: the rank is missing, and this is why.
  void add_unreadable(const std::string& file, const Status& why);

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] std::uint64_t cut() const noexcept { return cut_; }
  [[nodiscard]] std::uint64_t out_of_memory() const noexcept { return out_of_memory_; }
  [[nodiscard]] Bytes mean() const noexcept;
  [[nodiscard]] const std::optional<RankUse>& worst() const noexcept { return worst_; }
  [[nodiscard]] const std::optional<RankUse>& lowest() const noexcept { return lowest_; }
  // The worst rank beside the average: by category, and the worst beside the lowest by module.
  // Largest difference first; what is alike is left out.
  [[nodiscard]] std::vector<Difference> by_category() const;
  [[nodiscard]] std::vector<Difference> by_module() const;
  [[nodiscard]] std::int64_t world_size() const noexcept;
  [[nodiscard]] std::string missing() const { return ranks_.missing(world_size()); }
  [[nodiscard]] std::uint64_t missing_count() const noexcept;
  // Sentences: what was cut, unreadable, given twice. The first of each kind by name.
  [[nodiscard]] std::vector<std::string> warnings() const;

 private:
  std::uint64_t count_ = 0, cut_ = 0, out_of_memory_ = 0, unreadable_ = 0, twice_ = 0;
  std::int64_t world_size_ = -1;
  double sum_ = 0;
  RankSet ranks_;
  std::optional<RankUse> worst_, lowest_;
  std::map<std::string, double> category_sums_;
  std::string first_cut_, first_unreadable_, first_twice_;
};

// The rank in a name like run.17.peak, or -1.
std::int64_t rank_in_name(std::string_view path);
// The rank that a recording says it is, else the one in its name, else -1.
std::int64_t rank_of(const RunInfo& info, std::string_view path);

// Reads one recording. A cut one gives what it holds.
Result<RankUse> read_rank(const std::string& path);

// One JSON object; keys and meanings are in docs/json.md.
std::string merge_to_json(const RankMerge& merge);

}  // namespace peakline
