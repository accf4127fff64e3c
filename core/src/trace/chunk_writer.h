// Payloads become chunks in a sink: compressed where that helps, checksummed, one write each.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <peakline/trace.h>

#include "trace/format.h"

namespace peakline::trace {

// Not thread-safe.
class ChunkWriter {
 public:
  ChunkWriter(std::unique_ptr<Sink> sink, int compression_level);
  ~ChunkWriter();
  ChunkWriter(const ChunkWriter&) = delete;
  ChunkWriter& operator=(const ChunkWriter&) = delete;

  Status write_file_header();
  Status write(ChunkType type, std::span<const std::uint8_t> payload);
  Status flush() { return sink_->flush(); }
  [[nodiscard]] std::uint64_t bytes_written() const noexcept { return bytes_written_; }

 private:
  struct Compressor;
  Status put(std::span<const std::uint8_t> bytes);

  std::unique_ptr<Sink> sink_;
  std::unique_ptr<Compressor> compressor_;
  std::uint64_t bytes_written_ = 0;
  std::vector<std::uint8_t> chunk_;  // header and payload, kept for its memory
};

}  // namespace peakline::trace
