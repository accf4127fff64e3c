// Events as text, so that tests can compare them and say what differs.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <type_traits>

#include <peakline/event.h>

namespace peakline::testing {

namespace event_text_detail {

// Takes any struct of up to six fields apart; the event kinds are such structs.
struct Anything {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor): used for counting fields only
};
template <class T, class... Args>
constexpr std::size_t count_fields() {
  if constexpr (requires { T{Args{}..., Anything{}}; }) {
    return count_fields<T, Args..., Anything>();
  } else {
    return sizeof...(Args);
  }
}

template <class T>
auto number(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<unsigned>(value);
  } else if constexpr (std::is_integral_v<T>) {
    return value;
  } else {
    return value.raw();
  }
}

template <class... T>
std::string numbers(const T&... values) {
  std::string out;
  ((out += fmt::format(" {}", number(values))), ...);
  return out;
}

template <class T>
std::string fields(const T& body) {
  constexpr std::size_t kCount = count_fields<T>();
  static_assert(kCount <= 6);
  if constexpr (kCount == 0) {
    return {};
  } else if constexpr (kCount == 1) {
    const auto& [a] = body;
    return numbers(a);
  } else if constexpr (kCount == 2) {
    const auto& [a, b] = body;
    return numbers(a, b);
  } else if constexpr (kCount == 3) {
    const auto& [a, b, c] = body;
    return numbers(a, b, c);
  } else if constexpr (kCount == 4) {
    const auto& [a, b, c, d] = body;
    return numbers(a, b, c, d);
  } else if constexpr (kCount == 5) {
    const auto& [a, b, c, d, e] = body;
    return numbers(a, b, c, d, e);
  } else {
    const auto& [a, b, c, d, e, f] = body;
    return numbers(a, b, c, d, e, f);
  }
}

}  // namespace event_text_detail

// "@1000 t0 kind 2: 1 4096 4096 139611588448256 0 0": time, thread, kind and fields as numbers.
inline std::string to_text(const Event& event) {
  const std::string fields =
      visit_event([](const auto& body) { return event_text_detail::fields(body); }, event.body);
  return fmt::format("@{} t{} kind {}:{}", event.time.raw(), event.thread.raw(), event.body.index(),
                     fields);
}

}  // namespace peakline::testing
