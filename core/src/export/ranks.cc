#include "export/ranks.h"

#include <fmt/format.h>

#include <peakline/merge.h>

namespace peakline {

Result<TraceReader> open_reader(const SourceOpener& open) {
  Result<std::unique_ptr<Source>> source = open();
  if (!source.ok()) return source.status();
  return TraceReader::open(std::move(source).value());
}

Result<RankReader::Rank> RankReader::read(std::size_t index, std::vector<Pass*> also) {
  const ExportInput& run = runs_[index];
  Result<TraceReader> reader = open_reader(run.open);
  if (!reader.ok()) return reader.status();
  Result<Summary> summary = summarize(*reader, {.timeline_points = 2, .also = std::move(also)});
  if (!summary.ok()) return summary.status();
  std::int64_t rank = rank_of(summary->info, run.file);
  if (rank < 0) rank = static_cast<std::int64_t>(index);
  if (!seen_.insert(rank).second) {
    return invalid_input(
        fmt::format("{} is rank {}, and so is a recording before it: name each "
                    "rank once",
                    run.file, rank));
  }
  for (const std::string& warning : summary->warnings) {
    warnings_.push_back(runs_.size() > 1 ? fmt::format("rank {}: {}", rank, warning) : warning);
  }
  return Rank{std::move(*summary), rank};
}

}  // namespace peakline
