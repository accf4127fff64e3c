#include <fmt/format.h>

#include <utility>

#include <peakline/trace.h>

#include "base/coding.h"
#include "trace/chunk_reader.h"
#include "trace/decoder.h"
#include "trace/format.h"
#include "trace/info_table.h"

namespace peakline {
namespace {

// So many events fit into a core's second-level cache, and are enough to make calls cheap.
constexpr std::size_t kBatch = 2048;

}  // namespace

class TraceReader::Impl {
 public:
  explicit Impl(std::unique_ptr<Source> source)
      : chunks_(std::move(source)), decoder_(dictionary_, diagnostics_), batch_(kBatch) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Reads up to the first events, so that a file without any is refused right away.
  Status open() {
    PEAKLINE_RETURN_IF_ERROR(chunks_.read_file_header());
    while (state_ == State::kBetweenChunks) PEAKLINE_RETURN_IF_ERROR(next_chunk());
    if (state_ == State::kEnd && !ended_) {
      return invalid_input(fmt::format(
          "'{}' is cut off at byte {}: it holds no whole chunk of events, so nothing was recorded",
          chunks_.name(), chunks_.offset()));
    }
    return {};
  }

  // A recording without a trailer may still be written: who asks again after the end gets what has
  // come since.
  Result<std::span<const Event>> next() {
    if (state_ == State::kEnd && !ended_) state_ = State::kBetweenChunks;
    while (status_.ok() && state_ != State::kEnd) {
      if (state_ == State::kBetweenChunks) {
        status_ = next_chunk();
        continue;
      }
      const Result<std::size_t> count = decoder_.decode(batch_);
      if (!count.ok()) {
        status_ = damaged(count.status().message());
      } else if (*count > 0) {
        event_count_ += decoder_.counted();
        return std::span<const Event>(batch_).first(*count);
      } else {
        state_ = State::kBetweenChunks;
      }
    }
    if (!status_.ok()) return status_;
    return std::span<const Event>();
  }

  [[nodiscard]] const Dictionary& dictionary() const { return dictionary_; }
  [[nodiscard]] const RunInfo& info() const { return info_.info(); }
  [[nodiscard]] const Diagnostics& diagnostics() const { return diagnostics_; }

 private:
  enum class State { kBetweenChunks, kInEvents, kEnd };

  Status next_chunk() {
    const Result<bool> more = chunks_.next(chunk_);
    if (!more.ok()) return more.status();
    if (!*more) {
      state_ = State::kEnd;
      if (!std::exchange(cut_is_counted_, true)) {
        diagnostics_.count(Loss::kTruncatedTail, chunks_.cut_bytes());
        diagnostics_.count(Loss::kNoTrailer);
      }
      return {};
    }
    if (!chunk_.known) {
      diagnostics_.count(Loss::kUnknownChunk);
      return {};
    }
    switch (static_cast<trace::ChunkType>(chunk_.type)) {
      case trace::ChunkType::kInfo:
        return read_info();
      case trace::ChunkType::kEvents:
        return start_events();
      default:
        return read_trailer();
    }
  }

  Status damaged(std::string_view what) const { return chunks_.damaged(chunk_.offset, what); }

  Status start_events() {
    state_ = State::kInEvents;
    const Status started = decoder_.start(chunk_.payload);
    return started.ok() ? started : damaged(started.message());
  }

  Status read_info() {
    coding::ByteReader in(chunk_.payload);
    while (in.remaining() > 0) {
      const std::string_view key = in.text();
      const std::string_view value = in.text();
      if (!in.ok()) return damaged("the facts about the run make no sense");
      if (info_.set(key, value) == trace::InfoTable::Change::kNoRoom) {
        return damaged("there are too many facts about the run");
      }
    }
    return {};
  }

  Status read_trailer() {
    coding::ByteReader in(chunk_.payload);
    const std::uint64_t events = in.varint();
    in.varint();  // why it ended: the counts below say what that means for a reader
    const std::uint64_t unwritten_events = in.varint();
    const std::uint64_t unwritten_words = in.varint();
    if (!in.ok()) return damaged("the trailer makes no sense");
    if (events != event_count_) {
      return damaged(
          fmt::format("the trailer promises {} events, and there are {}", events, event_count_));
    }
    diagnostics_.count(Loss::kUnwrittenEvent, unwritten_events);
    diagnostics_.count(Loss::kUnwrittenWord, unwritten_words);
    const std::uint64_t end = chunks_.offset();
    const Result<bool> last = chunks_.at_end();
    if (!last.ok()) return last.status();
    if (!*last) return chunks_.damaged(end, "more bytes follow the trailer");
    state_ = State::kEnd;
    ended_ = true;
    return {};
  }

  trace::ChunkReader chunks_;
  Dictionary dictionary_;
  trace::InfoTable info_;
  Diagnostics diagnostics_;
  trace::EventDecoder decoder_;
  std::vector<Event> batch_;
  trace::Chunk chunk_;
  State state_ = State::kBetweenChunks;
  bool ended_ = false;  // with a trailer
  bool cut_is_counted_ = false;
  Status status_;
  std::uint64_t event_count_ = 0;
};

TraceReader::TraceReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TraceReader::~TraceReader() = default;
TraceReader::TraceReader(TraceReader&&) noexcept = default;
TraceReader& TraceReader::operator=(TraceReader&&) noexcept = default;

Result<TraceReader> TraceReader::open(std::unique_ptr<Source> source) {
  auto impl = std::make_unique<Impl>(std::move(source));
  PEAKLINE_RETURN_IF_ERROR(impl->open());
  return TraceReader(std::move(impl));
}

Result<std::span<const Event>> TraceReader::next() { return impl_->next(); }

const Dictionary& TraceReader::dictionary() const noexcept { return impl_->dictionary(); }

const RunInfo& TraceReader::info() const noexcept { return impl_->info(); }

const Diagnostics& TraceReader::diagnostics() const noexcept { return impl_->diagnostics(); }

}  // namespace peakline
