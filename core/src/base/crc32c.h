// CRC-32C (Castagnoli), the checksum of iSCSI, ext4 and SSE 4.2.
#pragma once

#include <cstdint>
#include <span>

namespace peakline {

// `crc` is the checksum of what came before, so that parts can be summed one after the other.
std::uint32_t crc32c(std::span<const std::uint8_t> bytes, std::uint32_t crc = 0) noexcept;

// The same without the processor's own instruction, for processors that have none.
std::uint32_t crc32c_portable(std::span<const std::uint8_t> bytes, std::uint32_t crc = 0) noexcept;

}  // namespace peakline
