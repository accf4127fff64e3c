// A summary out of its JSON: what json_export.cc wrote and somebody may have added to.
#pragma once

#include <nlohmann/json.hpp>

#include <peakline/summary.h>

namespace peakline {

// All but ops and timeline. What is missing or of another type is as in an empty summary.
Summary summary_from_json(const nlohmann::ordered_json& json);

// Parts of such JSON: `key` of `object`, or the default.
namespace json_part {
std::string text(const nlohmann::ordered_json& object, const char* key);
std::uint64_t count(const nlohmann::ordered_json& object, const char* key);
bool is_true(const nlohmann::ordered_json& object, const char* key);
std::optional<Bytes> bytes(const nlohmann::ordered_json& object, const char* key);
std::vector<NamedBytes> by_name(const nlohmann::ordered_json& object, const char* key);
std::vector<std::string> texts(const nlohmann::ordered_json& object, const char* key);
// An object or a list; an empty list when it is neither.
const nlohmann::ordered_json& of(const nlohmann::ordered_json& object, const char* key);
}  // namespace json_part

}  // namespace peakline
