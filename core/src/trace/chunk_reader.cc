#include "trace/chunk_reader.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/coding.h"
#include "base/crc32c.h"
#include "trace/sniff.h"

namespace peakline::trace {
namespace {

bool is_known(std::uint8_t type) {
  return type >= static_cast<std::uint8_t>(ChunkType::kInfo) &&
         type <= static_cast<std::uint8_t>(ChunkType::kTrailer);
}

}  // namespace

struct ChunkReader::Decompressor {
  Decompressor() : context(ZSTD_createDCtx()) {}
  ~Decompressor() { ZSTD_freeDCtx(context); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  // True when `in` decompresses to exactly as many bytes as `out` has.
  bool decompress(std::span<std::uint8_t> out, std::span<const std::uint8_t> in) {
    if (context == nullptr) return false;
    const std::size_t size =
        ZSTD_decompressDCtx(context, out.data(), out.size(), in.data(), in.size());
    return !ZSTD_isError(size) && size == out.size();
  }

  ZSTD_DCtx* context;
};

ChunkReader::ChunkReader(std::unique_ptr<Source> source)
    : source_(std::move(source)), decompressor_(std::make_unique<Decompressor>()) {}

ChunkReader::~ChunkReader() = default;

Result<std::size_t> ChunkReader::fill(std::span<std::uint8_t> buffer) {
  std::size_t filled = 0;
  while (filled < buffer.size()) {
    const Result<std::size_t> got = source_->read(std::as_writable_bytes(buffer.subspan(filled)));
    if (!got.ok()) return got.status();
    if (*got == 0) break;
    filled += *got;
  }
  offset_ += filled;
  return filled;
}

Status ChunkReader::damaged(std::uint64_t offset, std::string_view what) const {
  return invalid_input(fmt::format("'{}' is damaged at byte {}: {}", name(), offset, what));
}

Status ChunkReader::read_file_header() {
  std::array<std::uint8_t, kFileHeaderBytes> header{};
  const Result<std::size_t> got = fill(header);
  if (!got.ok()) return got.status();
  const std::span start = std::span(header).first(*got);
  const std::size_t magic = std::min(*got, kMagic.size());
  if (*got == 0) {
    return invalid_input(fmt::format("'{}' is empty, so it is not a peakline recording", name()));
  }
  if (!std::equal(start.begin(), start.begin() + static_cast<std::ptrdiff_t>(magic),
                  kMagic.begin())) {
    return not_a_recording(start);
  }
  if (*got < kFileHeaderBytes) {
    return invalid_input(fmt::format(
        "'{}' is cut off at byte {}, inside its header: it holds no whole chunk", name(), *got));
  }
  const auto crc = coding::get_fixed<std::uint32_t>(&header[12]);
  if (crc != crc32c(start.first(12))) return damaged(0, "the file header's checksum is wrong");
  const auto major = coding::get_fixed<std::uint16_t>(&header[8]);
  const auto minor = coding::get_fixed<std::uint16_t>(&header[10]);
  if (major == kMajorVersion) return {};
  return unsupported(fmt::format(
      "'{}' has format version {}.{}, and this peakline reads version {}: {}", name(), major, minor,
      kMajorVersion, major > kMajorVersion ? "update peakline" : "read it with an older peakline"));
}

Status ChunkReader::not_a_recording(std::span<const std::uint8_t> start) {
  // A little more than the header tells text and CSV apart.
  std::vector<std::uint8_t> beginning(start.begin(), start.end());
  beginning.resize(256);
  const Result<std::size_t> more = fill(std::span(beginning).subspan(start.size()));
  beginning.resize(start.size() + (more.ok() ? *more : 0));
  const std::string_view guess = sniff(beginning);
  return invalid_input(fmt::format("'{}' is not a peakline recording{}{}", name(),
                                   guess.empty() ? "" : ": it seems to be ", guess));
}

Result<bool> ChunkReader::cut(std::uint64_t from) {
  cut_bytes_ = offset_ - from;
  return false;
}

Result<bool> ChunkReader::next(Chunk& chunk) {
  chunk_offset_ = offset_;
  ChunkHeader header;
  Result<bool> whole = read_header(header);
  if (!whole.ok() || !*whole) return whole;
  PEAKLINE_RETURN_IF_ERROR(check_header(header));

  const std::size_t room = std::max(header.raw_bytes, header.stored_bytes) + kMaxEventBytes;
  const bool compressed = header.flags & kCompressed;
  if (raw_.size() < room) raw_.resize(room);
  if (compressed && stored_.size() < header.stored_bytes) stored_.resize(header.stored_bytes);
  const std::span stored = std::span(compressed ? stored_ : raw_).first(header.stored_bytes);
  whole = read_payload(header, stored);
  if (!whole.ok() || !*whole) return whole;

  chunk = {header.type, is_known(header.type), chunk_offset_, {}};
  if (!chunk.known) return true;
  const std::span payload = std::span(raw_).first(header.raw_bytes);
  if (compressed && !decompressor_->decompress(payload, stored)) {
    return damaged(chunk_offset_, "a chunk does not decompress");
  }
  std::fill_n(raw_.begin() + header.raw_bytes, kMaxEventBytes, std::uint8_t{0});
  chunk.payload = payload;
  return true;
}

Result<bool> ChunkReader::read_header(ChunkHeader& header) {
  std::array<std::uint8_t, kChunkHeaderBytes> bytes{};
  const Result<std::size_t> got = fill(bytes);
  if (!got.ok()) return got.status();
  if (*got == 0) return false;
  if (*got < bytes.size()) return cut(chunk_offset_);
  const auto crc = coding::get_fixed<std::uint32_t>(&bytes[16]);
  if (crc != crc32c(std::span(bytes).first(16))) {
    Result<bool> zeros = only_zeros_from(bytes);
    if (!zeros.ok()) return zeros;
    if (*zeros) return cut(chunk_offset_);
    return damaged(chunk_offset_, "a chunk header's checksum is wrong");
  }
  header.type = bytes[0];
  header.flags = bytes[1];
  header.raw_bytes = coding::get_fixed<std::uint32_t>(&bytes[4]);
  header.stored_bytes = coding::get_fixed<std::uint32_t>(&bytes[8]);
  header.payload_crc = coding::get_fixed<std::uint32_t>(&bytes[12]);
  return true;
}

// After a power cut a file may end in zeros that were promised and never written.
Result<bool> ChunkReader::only_zeros_from(std::span<const std::uint8_t> start) {
  const auto is_zero = [](std::uint8_t byte) { return byte == 0; };
  std::array<std::uint8_t, 4096> buffer{};
  while (std::all_of(start.begin(), start.end(), is_zero)) {
    const Result<std::size_t> got = fill(buffer);
    if (!got.ok()) return got.status();
    if (*got == 0) return true;
    start = std::span(buffer).first(*got);
  }
  return false;
}

Status ChunkReader::check_header(const ChunkHeader& header) const {
  if (header.raw_bytes > kMaxChunkBytes || header.stored_bytes > kMaxChunkBytes) {
    return damaged(chunk_offset_,
                   fmt::format("a chunk of {} bytes is larger than the limit of {}",
                               std::max(header.raw_bytes, header.stored_bytes), kMaxChunkBytes));
  }
  if (!is_known(header.type)) return {};
  if (header.flags & ~kCompressed) {
    return unsupported(fmt::format(
        "'{}' has a chunk of a newer version at byte {}: update peakline", name(), chunk_offset_));
  }
  if (!(header.flags & kCompressed) && header.raw_bytes != header.stored_bytes) {
    return damaged(chunk_offset_, "an uncompressed chunk has two lengths");
  }
  return {};
}

Result<bool> ChunkReader::read_payload(const ChunkHeader& header, std::span<std::uint8_t> payload) {
  const Result<std::size_t> got = fill(payload);
  if (!got.ok()) return got.status();
  if (*got < payload.size()) return cut(chunk_offset_);
  if (crc32c(payload) == header.payload_crc) return true;
  // The last chunk of a machine that went down may have its length but not its bytes.
  const Result<bool> last = at_end();
  if (!last.ok()) return last.status();
  if (*last) return cut(chunk_offset_);
  return damaged(chunk_offset_, "a chunk's checksum is wrong");
}

Result<bool> ChunkReader::at_end() {
  if (source_->grows()) return true;
  std::uint8_t byte = 0;
  const Result<std::size_t> got = fill({&byte, 1});
  if (!got.ok()) return got.status();
  return *got == 0;
}

}  // namespace peakline::trace
