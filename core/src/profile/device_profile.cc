#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>
#include <string>

#include <peakline/device_profile.h>

#include "profile/embedded.h"
#include "profile/profile_fields.h"
#include "profile/profile_reader.h"

namespace peakline {
namespace {

constexpr std::streamsize kLargestFile = 1 << 20;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool looks_like_a_path(std::string_view text) {
  return text.find('/') != std::string_view::npos || text.ends_with(".toml");
}

Result<DeviceProfile> load_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return io_error(fmt::format("{}: cannot be opened", path));
  std::string text(static_cast<std::size_t>(kLargestFile) + 1, '\0');
  file.read(text.data(), kLargestFile + 1);
  if (file.bad()) return io_error(fmt::format("{}: cannot be read", path));
  if (file.gcount() > kLargestFile) {
    return invalid_input(fmt::format("{}: is too large for a GPU profile", path));
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_profile(text, path);
}

std::string known_ids() {
  std::string text;
  for (const DeviceProfile& profile : known_profiles()) {
    text += (text.empty() ? "" : ", ") + profile.id;
  }
  return text;
}

template <class Member>
std::string number_text(const DeviceProfile& profile, Member member) {
  if constexpr (std::is_same_v<Member, Bytes DeviceProfile::*>) {
    return std::to_string((profile.*member).raw());
  } else {
    return std::to_string(profile.*member);
  }
}

// "2.11" is the beginning of "2.11.0+cu130", and not of "2.110".
bool is_release(std::string_view version, std::string_view release) {
  return version.starts_with(release) &&
         (version.size() == release.size() || version[release.size()] == '.');
}

bool any_release(std::string_view version, const std::vector<std::string>& releases) {
  for (const std::string& release : releases) {
    if (is_release(version, release)) return true;
  }
  return false;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + "\"";
}

std::string versions_toml(const DeviceProfile::MeasuredVersions& measured) {
  std::string text;
  for (const profile::VersionList& list : profile::kVersionLists) {
    std::string items;
    for (const std::string& version : measured.*list.member) {
      items += (items.empty() ? "" : ", ") + quoted(version);
    }
    if (!items.empty()) text += fmt::format("{} = [{}]\n", list.key, items);
  }
  return text.empty() ? text : fmt::format("\n[{}]\n{}", profile::kVersions, text);
}

}  // namespace

NumberSource DeviceProfile::source_of(std::string_view key) const noexcept {
  for (const Provenance& entry : provenance) {
    if (entry.key == key) return entry.source;
  }
  return NumberSource::kMeasured;
}

bool DeviceProfile::measured_with_torch(std::string_view version) const noexcept {
  return any_release(version, measured_versions.torch);
}

bool DeviceProfile::measured_with_cudnn(std::string_view version) const noexcept {
  return any_release(version, measured_versions.cudnn);
}

const std::vector<DeviceProfile>& known_profiles() {
  static const std::vector<DeviceProfile> profiles = profile::read_embedded();
  return profiles;
}

Result<DeviceProfile> load_profile(std::string_view name_or_path) {
  if (looks_like_a_path(name_or_path)) return load_file(std::string(name_or_path));
  const std::string wanted = lower(name_or_path);
  for (const DeviceProfile& profile : known_profiles()) {
    if (wanted == profile.id || wanted == lower(profile.name)) return profile;
    if (std::find(profile.aliases.begin(), profile.aliases.end(), wanted) !=
        profile.aliases.end()) {
      return profile;
    }
  }
  return invalid_input(
      fmt::format("unknown GPU '{}': known are {}; or give the path of a .toml file", name_or_path,
                  known_ids()));
}

std::string to_toml(const DeviceProfile& profile) {
  std::string text = fmt::format("id = {}\nname = {}\n", quoted(profile.id), quoted(profile.name));
  for (const auto& [table, source] : profile::kSources) {
    std::string body;
    if (profile.source_of(profile::kCapability) == source) {
      body += fmt::format("compute_capability = \"{}.{}\"\n", profile.major, profile.minor);
    }
    for (const profile::Field& field : profile::kFields) {
      if (profile.source_of(field.key) != source) continue;
      body += fmt::format(
          "{} = {}\n", field.key,
          std::visit([&](auto member) { return number_text(profile, member); }, field.member));
    }
    for (const profile::Rate& rate : profile::kRates) {
      if (profile.source_of(rate.key) != source) continue;
      body += fmt::format("{} = {:.6g}\n", rate.key, profile.time.*rate.member);
    }
    if (!body.empty()) text += fmt::format("\n[{}]\n{}", table, body);
  }
  return text + versions_toml(profile.measured_versions);
}

DriverOptions driver_options(const DeviceProfile& profile) {
  DriverOptions options;
  options.total = profile.total_memory;
  options.in_use = profile.context_with_cudnn;
  return options;
}

}  // namespace peakline
