// Any bytes as a snapshot: an answer or a sentence, never a crash, never more memory than allowed.
#include <cstdint>
#include <string_view>

#include "import_support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto run = peakline::testing::imported_snapshot(bytes);
  if (!run->status.ok() && run->status.message().empty()) __builtin_trap();
  return 0;
}
