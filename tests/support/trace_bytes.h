// Recording files taken apart and put together by hand, for tests of damaged and of newer files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/coding.h"
#include "base/crc32c.h"
#include "trace/format.h"

namespace peakline::testing {

using Bytestring = std::vector<std::byte>;

inline std::span<const std::uint8_t> as_u8(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

inline void append(Bytestring& out, std::span<const std::uint8_t> bytes) {
  for (const std::uint8_t byte : bytes) out.push_back(std::byte{byte});
}

// The header of a file, of this version or another.
inline Bytestring file_header(std::uint16_t major = trace::kMajorVersion,
                              std::uint16_t minor = trace::kMinorVersion) {
  std::vector<std::uint8_t> header(trace::kMagic.begin(), trace::kMagic.end());
  header.resize(trace::kFileHeaderBytes);
  coding::put_fixed(&header[8], major);
  coding::put_fixed(&header[10], minor);
  coding::put_fixed(&header[12], crc32c(std::span(header).first(12)));
  Bytestring out;
  append(out, header);
  return out;
}

// A chunk whose header may say anything; its checksums are right.
inline Bytestring chunk_with(std::uint8_t type, std::uint8_t flags, std::uint32_t raw_bytes,
                             std::uint32_t stored_bytes, std::span<const std::uint8_t> payload) {
  std::vector<std::uint8_t> header(trace::kChunkHeaderBytes);
  header[0] = type;
  header[1] = flags;
  coding::put_fixed(&header[4], raw_bytes);
  coding::put_fixed(&header[8], stored_bytes);
  coding::put_fixed(&header[12], crc32c(payload));
  coding::put_fixed(&header[16], crc32c(std::span(header).first(16)));
  Bytestring out;
  append(out, header);
  append(out, payload);
  return out;
}

inline Bytestring chunk(std::uint8_t type, std::span<const std::uint8_t> payload) {
  const auto size = static_cast<std::uint32_t>(payload.size());
  return chunk_with(type, 0, size, size, payload);
}

// The payload of an events chunk from its columns.
inline std::vector<std::uint8_t> events_payload(
    std::uint64_t events, const std::vector<std::uint8_t>& records,
    const std::vector<std::uint8_t>& times = {}, const std::vector<std::uint8_t>& addresses = {},
    const std::vector<std::uint8_t>& later_column = {}) {
  std::vector<std::uint8_t> out;
  const std::vector<std::uint8_t>* columns[] = {&records, &times, &addresses, &later_column};
  const std::size_t count = later_column.empty() ? 3 : 4;
  coding::append_varint(out, events);
  coding::append_varint(out, 0);  // base time
  coding::append_varint(out, 0);  // base block
  coding::append_varint(out, count);
  for (std::size_t i = 0; i < count; ++i) coding::append_varint(out, columns[i]->size());
  for (std::size_t i = 0; i < count; ++i) {
    out.insert(out.end(), columns[i]->begin(), columns[i]->end());
  }
  return out;
}

inline std::vector<std::uint8_t> trailer_payload(std::uint64_t events) {
  std::vector<std::uint8_t> out;
  coding::append_varint(out, events);
  for (int i = 0; i < 3; ++i) coding::append_varint(out, 0);
  return out;
}

inline Bytestring operator+(Bytestring left, const Bytestring& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

inline Bytestring first(const Bytestring& bytes, std::size_t size) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)};
}

// Where the chunks of a whole file begin, and, last, where it ends.
inline std::vector<std::size_t> chunk_offsets(const Bytestring& file) {
  std::vector<std::size_t> out{trace::kFileHeaderBytes};
  while (out.back() + trace::kChunkHeaderBytes <= file.size()) {
    const std::uint8_t* header = as_u8(file).data() + out.back();
    out.push_back(out.back() + trace::kChunkHeaderBytes +
                  coding::get_fixed<std::uint32_t>(header + 8));
  }
  return out;
}

inline Bytestring text_bytes(std::string_view text) {
  Bytestring out(text.size());
  std::memcpy(out.data(), text.data(), text.size());
  return out;
}

}  // namespace peakline::testing
