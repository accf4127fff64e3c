// Reads a Python pickle without Python, and without being told what to build.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <peakline/status.h>
#include <peakline/trace.h>

namespace peakline::pickle {

struct Container;
using Text = std::shared_ptr<const std::string>;
using Ref = std::shared_ptr<Container>;
// None, a truth value, a number, a text (bytes, too), or a container: nothing else exists. Integers
// beyond 64 bits are cut to the nearest that fits.
using Value = std::variant<std::monostate, bool, std::int64_t, double, Text, Ref>;

// A list, tuple or dict. Complete ones never change, so values form no cycles.
struct Container {
  enum class Kind : std::uint8_t { kList, kTuple, kDict };
  Kind kind = Kind::kList;
  bool is_open = true;       // still being filled
  std::uint8_t depth = 1;    // of containers in it, itself included
  std::uint32_t memo = 0;    // its place in the memo, plus one; 0 when it has none
  std::vector<Value> items;  // of a dict: key, value, key, value, …

  // The value under a text key of a dict, or null.
  [[nodiscard]] const Value* find(std::string_view key) const noexcept;
};

[[nodiscard]] std::string_view text_of(const Value& value) noexcept;  // empty when it is none
[[nodiscard]] const Container* container_of(const Value& value) noexcept;
[[nodiscard]] const std::int64_t* integer_of(const Value& value) noexcept;

// Takes the pieces of large lists before the pickle is complete.
class Listener {
 public:
  virtual ~Listener() = default;
  // `items` are about to join a list: the one under the dict key `key`, or with `nested` the list
  // number `index` inside that one. True: they have been taken, and the list stays empty.
  virtual Result<bool> on_items(std::string_view key, bool nested, std::size_t index,
                                std::vector<Value>& items) = 0;
};

struct Limits {
  std::uint64_t values = std::uint64_t{64} << 20;       // held at one time
  std::uint64_t text_bytes = std::uint64_t{512} << 20;  // of all different texts together
  std::uint8_t depth = 64;
};

// Reads one pickle of protocol 0 to 5. Opcodes that name classes or call functions are refused with
// a sentence: reading runs no code and builds nothing but plain data. What a listener has taken is
// forgotten; a pickle that refers back to it is refused. Beyond what is kept, memory grows by four
// bytes for every object that the pickle numbers.
Result<Value> read(Source& source, Listener* listener = nullptr, const Limits& limits = {});

}  // namespace peakline::pickle
