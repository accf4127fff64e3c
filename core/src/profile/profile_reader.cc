#define TOML_EXCEPTIONS 0
#include "profile/profile_reader.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "profile/embedded.h"
#include "profile/profile_fields.h"

namespace peakline::profile {
namespace {

const Field* field_named(std::string_view key) {
  for (const Field& field : kFields) {
    if (field.key == key) return &field;
  }
  return nullptr;
}

const Rate* rate_named(std::string_view key) {
  for (const Rate& rate : kRates) {
    if (rate.key == key) return &rate;
  }
  return nullptr;
}

const SourceTable* source_named(std::string_view key) {
  for (const SourceTable& source : kSources) {
    if (source.table == key) return &source;
  }
  return nullptr;
}

// Reads one GPU's table. `where` names the file in errors.
class Reader {
 public:
  explicit Reader(std::string_view where) : where_(where) {}

  Result<DeviceProfile> read(const toml::table& table, std::string_view id) {
    profile_.id = id;
    profile_.name = id;
    for (const auto& [key, node] : table) PEAKLINE_RETURN_IF_ERROR(top_level(key.str(), node));
    PEAKLINE_RETURN_IF_ERROR(check());
    complete_rates(profile_);
    return profile_;
  }

 private:
  Status error(const toml::node& node, std::string_view what) const {
    return invalid_input(fmt::format("{}:{}: {}", where_, node.source().begin.line, what));
  }

  Status top_level(std::string_view key, const toml::node& node) {
    if (key == "name" || key == "id") {
      const std::optional<std::string_view> text = node.value_exact<std::string_view>();
      if (!text || text->empty()) return error(node, fmt::format("'{}' must be text", key));
      (key == "id" ? profile_.id : profile_.name) = *text;
      return {};
    }
    if (key == kVersions) return versions(node);
    if (key == "aliases") return aliases(node);
    const SourceTable* source = source_named(key);
    if (source == nullptr) {
      return error(node,
                   fmt::format("unknown key '{}': a profile has id, name, aliases, and the tables "
                               "measured, public, estimated and versions",
                               key));
    }
    const toml::table* numbers = node.as_table();
    if (numbers == nullptr) return error(node, fmt::format("'{}' must be a table", key));
    for (const auto& [name, value] : *numbers) {
      PEAKLINE_RETURN_IF_ERROR(number(name.str(), value, source->source));
    }
    return {};
  }

  // torch = ["2.11"], cudnn = ["9.19"]
  Status versions(const toml::node& node) {
    const toml::table* lists = node.as_table();
    if (lists == nullptr) return error(node, "'versions' must be a table");
    for (const auto& [key, value] : *lists) {
      const std::string_view name = key.str();
      const auto* list = std::ranges::find(kVersionLists, name, &VersionList::key);
      if (list == kVersionLists.end()) {
        return error(value, fmt::format("unknown key '{}': versions are of torch and cudnn", name));
      }
      const toml::array* texts = value.as_array();
      if (texts == nullptr || !texts->is_homogeneous<std::string>()) {
        return error(value, fmt::format("'{}' must be a list of texts like \"2.11\"", key.str()));
      }
      for (const toml::node& text : *texts) {
        (profile_.measured_versions.*(list->member)).push_back(text.value_or(std::string()));
      }
    }
    return {};
  }

  Status aliases(const toml::node& node) {
    const toml::array* words = node.as_array();
    if (words == nullptr) return error(node, "'aliases' must be a list of texts");
    for (const toml::node& word : *words) {
      const std::optional<std::string_view> text = word.value_exact<std::string_view>();
      if (!text || text->empty()) return error(node, "'aliases' must be a list of texts");
      profile_.aliases.emplace_back(*text);
    }
    return {};
  }

  Status number(std::string_view key, const toml::node& node, NumberSource source) {
    for (const std::string_view seen : seen_) {
      if (seen == key) return error(node, fmt::format("'{}' is given twice", key));
    }
    seen_.emplace_back(key);
    if (source != NumberSource::kMeasured)
      profile_.provenance.push_back({std::string(key), source});
    if (key == kCapability) return capability(node);
    if (const Rate* rate = rate_named(key)) return rate_number(*rate, node);
    const Field* field = field_named(key);
    if (field == nullptr) return error(node, fmt::format("unknown number '{}'", key));
    const std::optional<std::int64_t> value = value_of(node);
    if (!value || *value < field->least || *value > field->most) {
      return error(node, fmt::format("'{}' must be a number between {} and {}", key, field->least,
                                     field->most));
    }
    if (const auto* count = std::get_if<int DeviceProfile::*>(&field->member)) {
      profile_.** count = static_cast<int>(*value);
    } else {
      profile_.*std::get<Bytes DeviceProfile::*>(field->member) = Bytes(*value);
    }
    return {};
  }

  Status rate_number(const Rate& rate, const toml::node& node) {
    const std::optional<double> value = node.value<double>();
    if (!value || !(*value >= rate.least && *value <= rate.most)) {
      return error(node, fmt::format("'{}' must be a number between {} and {}", rate.key,
                                     rate.least, rate.most));
    }
    profile_.time.*rate.member = *value;
    return {};
  }

  // Plain integers, or sizes as people write them: "619MiB".
  static std::optional<std::int64_t> value_of(const toml::node& node) {
    if (const std::optional<std::int64_t> plain = node.value_exact<std::int64_t>()) return plain;
    const std::optional<std::string_view> text = node.value_exact<std::string_view>();
    if (!text) return std::nullopt;
    const Result<Bytes> size = parse_size(*text);
    return size.ok() ? std::optional(size->raw()) : std::nullopt;
  }

  Status capability(const toml::node& node) {
    const std::string_view text = node.value_exact<std::string_view>().value_or("");
    const std::size_t dot = text.find('.');
    int* const parts[] = {&profile_.major, &profile_.minor};
    const std::string_view texts[] = {text.substr(0, dot),
                                      dot == text.npos ? "" : text.substr(dot + 1)};
    for (int i = 0; i < 2; ++i) {
      const char* end = texts[i].data() + texts[i].size();
      const auto [at, failed] = std::from_chars(texts[i].data(), end, *parts[i]);
      if (failed != std::errc{} || at != end || *parts[i] < 0 || *parts[i] > 99) {
        return error(node, "'compute_capability' must be text like \"9.0\"");
      }
    }
    return {};
  }

  Status check() {
    for (const Field& field : kFields) {
      if (field.required && !has(field.key)) return missing(field.key);
    }
    if (!has(kCapability)) return missing(kCapability);
    if (profile_.context > profile_.context_with_cublas ||
        profile_.context_with_cublas > profile_.context_with_cudnn ||
        profile_.context_with_cudnn >= profile_.total_memory) {
      return invalid_input(fmt::format(
          "{}: context, context_with_cublas, context_with_cudnn and total_memory must not shrink "
          "in this order",
          where_));
    }
    return {};
  }
  [[nodiscard]] bool has(std::string_view key) const {
    for (const std::string_view seen : seen_) {
      if (seen == key) return true;
    }
    return false;
  }
  [[nodiscard]] Status missing(std::string_view key) const {
    return invalid_input(fmt::format("{}: '{}' is missing", where_, key));
  }

  std::string_view where_;
  DeviceProfile profile_;
  std::vector<std::string> seen_;
};

}  // namespace

std::vector<DeviceProfile> read_embedded() {
  std::vector<std::pair<std::uint32_t, DeviceProfile>> found;
  const toml::parse_result parsed = toml::parse(kEmbeddedProfiles, std::string_view("gpus.toml"));
  if (!parsed) return {};
  for (const auto& [key, node] : parsed.table()) {
    if (!node.is_table()) continue;
    Result<DeviceProfile> profile = Reader("gpus.toml").read(*node.as_table(), key.str());
    if (profile.ok()) found.emplace_back(node.source().begin.line, std::move(*profile));
  }
  // toml++ sorts keys; people expect the file's order.
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<DeviceProfile> profiles;
  profiles.reserve(found.size());
  for (auto& [line, profile] : found) profiles.push_back(std::move(profile));
  return profiles;
}

}  // namespace peakline::profile

namespace peakline {

Result<DeviceProfile> parse_profile(std::string_view text, std::string_view where) {
  const toml::parse_result parsed = toml::parse(text, where);
  if (!parsed) {
    return invalid_input(fmt::format("{}:{}: {}", where, parsed.error().source().begin.line,
                                     parsed.error().description()));
  }
  return profile::Reader(where).read(parsed.table(), "custom");
}

}  // namespace peakline
