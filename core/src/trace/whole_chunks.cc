#include "trace/whole_chunks.h"

#include <algorithm>

#include "base/coding.h"
#include "trace/format.h"

namespace peakline::trace {

Result<std::size_t> WholeChunks::read(std::span<std::byte> buffer) {
  if (complete_ && given_ == bytes_.size()) {
    complete_ = false;
    header_is_read_ = true;
    given_ = 0;
    bytes_.clear();
  }
  if (!complete_) {
    Result<bool> whole = header_is_read_ ? have_chunk() : have(kFileHeaderBytes);
    if (!whole.ok()) return whole.status();
    if (!*whole) return std::size_t{0};
    complete_ = true;
  }
  const std::size_t size = std::min(buffer.size(), bytes_.size() - given_);
  std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(given_), size, buffer.begin());
  given_ += size;
  return size;
}

Result<bool> WholeChunks::have_chunk() {
  Result<bool> header = have(kChunkHeaderBytes);
  if (!header.ok() || !*header) return header;
  const auto* start = reinterpret_cast<const std::uint8_t*>(bytes_.data());
  // A length that cannot be is the reader's to refuse.
  const auto stored = std::min(coding::get_fixed<std::uint32_t>(start + 8), kMaxChunkBytes);
  return have(kChunkHeaderBytes + stored);
}

Result<bool> WholeChunks::have(std::size_t size) {
  while (bytes_.size() < size) {
    const std::size_t before = bytes_.size();
    bytes_.resize(size);
    const Result<std::size_t> got = source_->read(std::span(bytes_).subspan(before));
    bytes_.resize(before + (got.ok() ? *got : 0));
    if (!got.ok()) return got.status();
    if (*got == 0) return false;
  }
  return true;
}

}  // namespace peakline::trace
