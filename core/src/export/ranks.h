// Recordings of many ranks as one: which rank each is, and what there is to say about it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <peakline/export.h>
#include <peakline/summary.h>

namespace peakline {

Result<TraceReader> open_reader(const SourceOpener& open);

// Reads the recordings one after another. Not thread-safe.
class RankReader {
 public:
  explicit RankReader(std::span<const ExportInput> runs) : runs_(runs) {}

  struct Rank {
    Summary summary;
    std::int64_t rank = 0;
  };
  // The summary of run `index`, and its rank; `also` watch the same read. Two recordings of one rank
  // are refused.
  Result<Rank> read(std::size_t index, std::vector<Pass*> also = {});

  [[nodiscard]] std::vector<std::string>& warnings() noexcept { return warnings_; }

 private:
  std::span<const ExportInput> runs_;
  std::set<std::int64_t> seen_;
  std::vector<std::string> warnings_;
};

}  // namespace peakline
