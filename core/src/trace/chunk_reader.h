// A source becomes chunks: lengths bounded, checksums checked, payloads decompressed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <peakline/trace.h>

#include "trace/format.h"

namespace peakline::trace {

struct Chunk {
  std::uint8_t type = 0;
  bool known = false;        // else the payload is empty: this version cannot read it
  std::uint64_t offset = 0;  // of the chunk in the file
  // Valid until the next chunk is read, and followed by kMaxEventBytes readable zeros.
  std::span<const std::uint8_t> payload;
};

// Not thread-safe.
class ChunkReader {
 public:
  explicit ChunkReader(std::unique_ptr<Source> source);
  ~ChunkReader();
  ChunkReader(const ChunkReader&) = delete;
  ChunkReader& operator=(const ChunkReader&) = delete;

  // To be called first.
  Status read_file_header();
  // False at the end of the file; cut_bytes() then says how many bytes of a last chunk were there.
  Result<bool> next(Chunk& chunk);
  // True when nothing follows. Only to be asked after the trailer: it reads on.
  Result<bool> at_end();

  [[nodiscard]] std::uint64_t cut_bytes() const noexcept { return cut_bytes_; }
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
  // "'FILE' is damaged at byte N: WHAT".
  [[nodiscard]] Status damaged(std::uint64_t offset, std::string_view what) const;
  [[nodiscard]] std::string_view name() const noexcept { return source_->name(); }

 private:
  struct Decompressor;

  // Fills `buffer` as far as the file goes.
  Result<std::size_t> fill(std::span<std::uint8_t> buffer);
  Result<bool> read_header(ChunkHeader& header);
  Result<bool> only_zeros_from(std::span<const std::uint8_t> start);
  Status check_header(const ChunkHeader& header) const;
  Result<bool> read_payload(const ChunkHeader& header, std::span<std::uint8_t> payload);
  Status not_a_recording(std::span<const std::uint8_t> start);
  Result<bool> cut(std::uint64_t from);

  std::unique_ptr<Source> source_;
  std::unique_ptr<Decompressor> decompressor_;
  std::vector<std::uint8_t> stored_;
  std::vector<std::uint8_t> raw_;
  std::uint64_t offset_ = 0;  // of the next byte
  std::uint64_t chunk_offset_ = 0;
  std::uint64_t cut_bytes_ = 0;
};

}  // namespace peakline::trace
