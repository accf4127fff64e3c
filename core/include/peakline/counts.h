// Numbers of things, as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace peakline {

// "1,234,567"
std::string grouped(std::uint64_t number);

// A number with its noun: "1 step", "1,024 steps". `many` is for nouns that do more than add an s.
std::string counted(std::uint64_t number, std::string_view one, std::string_view many = {});

}  // namespace peakline
