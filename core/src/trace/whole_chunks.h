// A recording that somebody else is still writing, a whole chunk at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <peakline/trace.h>

namespace peakline::trace {

// Gives the bytes of `source` as far as its chunks are complete, and says "the end" there. Asked again
// later it goes on, so a TraceReader above it never meets half a chunk. Not thread-safe.
class WholeChunks final : public Source {
 public:
  explicit WholeChunks(std::unique_ptr<Source> source) : source_(std::move(source)) {}

  Result<std::size_t> read(std::span<std::byte> buffer) override;
  [[nodiscard]] std::string_view name() const noexcept override { return source_->name(); }
  [[nodiscard]] bool grows() const noexcept override { return true; }

 private:
  // Reads on until `bytes_` has `size` bytes. False when they are not there yet.
  Result<bool> have(std::size_t size);
  Result<bool> have_chunk();

  std::unique_ptr<Source> source_;
  std::vector<std::byte> bytes_;  // the file header or one chunk, perhaps not all of it yet
  std::size_t given_ = 0;         // of them, once they are complete
  bool complete_ = false;
  bool header_is_read_ = false;
};

}  // namespace peakline::trace
