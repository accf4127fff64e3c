// What a stretch of the program allocates and frees on one device, in order. A compiled graph's
// measurements are kept so, beside its code.
#pragma once

#include <cstdint>
#include <vector>

namespace peakline::vgpu {

// Bytes as asked for; 0: the block of that address was freed.
struct AllocStep {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};

void begin_alloc_log(int device);
// What there was since begin_alloc_log(); nothing is logged from now on.
std::vector<AllocStep> end_alloc_log();
void log_alloc(int device, std::uint64_t address, std::uint64_t bytes);
void log_free(int device, std::uint64_t address);

}  // namespace peakline::vgpu
