// Any text as the tables that people write or share: GPU profiles (TOML), measured calls (JSON lines), and the
// baseline of a check (JSON).
#include <cstdint>
#include <string_view>

#include <peakline/device_profile.h>
#include <peakline/diff.h>
#include <peakline/measured_calls.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace peakline;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  Status status;
  switch (data[0] % 3) {
    case 0:
      status = parse_profile(text, "fuzz.toml").status();
      break;
    case 1:
      status = read_measured(text).status();
      break;
    default:
      status = facts_from_json(text, "fuzz.json").status();
  }
  if (!status.ok() && status.message().empty()) __builtin_trap();
  return 0;
}
