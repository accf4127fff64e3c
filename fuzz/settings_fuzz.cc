// Any text as what people type and set: allocator settings, sizes, versions.
#include <cstdint>
#include <string_view>

#include <peakline/allocator_config.h>
#include <peakline/units.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace peakline;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const TorchVersion torch : {TorchVersion{2, 11}, TorchVersion{2, 15}}) {
    const Result<AllocatorConfig> config = AllocatorConfig::parse(text, torch);
    if (!config.ok() && config.status().message().empty()) __builtin_trap();
  }
  const Result<Bytes> bytes = parse_size(text);
  if (bytes.ok() && parse_size(format_size(*bytes)).status().code() == StatusCode::kIo) {
    __builtin_trap();
  }
  static_cast<void>(parse_torch_version(text));
  return 0;
}
