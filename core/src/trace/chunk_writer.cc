#include "trace/chunk_writer.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/coding.h"
#include "base/crc32c.h"

namespace peakline::trace {

struct ChunkWriter::Compressor {
  explicit Compressor(int level) : context(ZSTD_createCCtx()) {
    const int clamped = std::clamp(level, ZSTD_minCLevel(), ZSTD_maxCLevel());
    if (context != nullptr) {
      ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, clamped);
    }
  }
  ~Compressor() { ZSTD_freeCCtx(context); }
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  // The compressed size, or 0 when it does not fit into `out`.
  std::size_t compress(std::span<std::uint8_t> out, std::span<const std::uint8_t> in) {
    if (context == nullptr) return 0;
    const std::size_t size = ZSTD_compress2(context, out.data(), out.size(), in.data(), in.size());
    return ZSTD_isError(size) ? 0 : size;
  }

  ZSTD_CCtx* context;
};

ChunkWriter::ChunkWriter(std::unique_ptr<Sink> sink, int compression_level)
    : sink_(std::move(sink)), compressor_(std::make_unique<Compressor>(compression_level)) {}

ChunkWriter::~ChunkWriter() = default;

Status ChunkWriter::write_file_header() {
  std::array<std::uint8_t, kFileHeaderBytes> header{};
  std::uint8_t* out = std::copy(kMagic.begin(), kMagic.end(), header.data());
  out = coding::put_fixed(out, kMajorVersion);
  out = coding::put_fixed(out, kMinorVersion);
  const std::span summed(header.data(), out);
  coding::put_fixed(out, crc32c(summed));
  return put(header);
}

Status ChunkWriter::put(std::span<const std::uint8_t> bytes) {
  PEAKLINE_RETURN_IF_ERROR(sink_->write(std::as_bytes(bytes)));
  bytes_written_ += bytes.size();
  return {};
}

Status ChunkWriter::write(ChunkType type, std::span<const std::uint8_t> payload) {
  const std::size_t room = std::max(ZSTD_compressBound(payload.size()), payload.size());
  if (chunk_.size() < kChunkHeaderBytes + room) chunk_.resize(kChunkHeaderBytes + room);
  const std::span body = std::span(chunk_).subspan(kChunkHeaderBytes);

  std::uint8_t flags = kCompressed;
  std::size_t stored = compressor_->compress(body, payload);
  if (stored == 0 || stored >= payload.size()) {
    flags = 0;
    stored = payload.size();
    std::copy(payload.begin(), payload.end(), body.begin());
  }

  std::uint8_t* out = chunk_.data();
  *out++ = static_cast<std::uint8_t>(type);
  *out++ = flags;
  out = coding::put_fixed(out, std::uint16_t{0});
  out = coding::put_fixed(out, static_cast<std::uint32_t>(payload.size()));
  out = coding::put_fixed(out, static_cast<std::uint32_t>(stored));
  out = coding::put_fixed(out, crc32c(body.first(stored)));
  const std::span summed(chunk_.data(), out);
  coding::put_fixed(out, crc32c(summed));
  return put(std::span(chunk_).first(kChunkHeaderBytes + stored));
}

}  // namespace peakline::trace
