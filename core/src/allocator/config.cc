#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include <peakline/allocator_config.h>

namespace peakline {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kMaxMiB = std::uint64_t{1}
                                  << 40;  // far above any device, far below overflow

// "key1:val1,key2:[a:b,c:d]" as keys, values and the four signs between them. Spaces do not count.
std::vector<std::string> tokens_of(std::string_view text) {
  std::vector<std::string> tokens;
  std::string word;
  const auto flush = [&] {
    if (!word.empty()) tokens.push_back(std::move(word));
    word.clear();
  };
  for (const char c : text) {
    if (c == ',' || c == ':' || c == '[' || c == ']') {
      flush();
      tokens.emplace_back(1, c);
    } else if (c != ' ' && c != '\t' && c != '\n' && c != '\r' && c != '\v' && c != '\f') {
      word += c;
    }
  }
  flush();
  return tokens;
}

bool is_sign(std::string_view token) {
  return token == "," || token == ":" || token == "[" || token == "]";
}

std::optional<std::uint64_t> to_number(std::string_view token) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  if (error != std::errc{} || end != token.data() + token.size()) return std::nullopt;
  return value;
}

std::optional<double> to_double(std::string_view token) {
  const std::string text(token);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value)) return std::nullopt;
  return value;
}

// A cursor over the tokens that knows which option it is in.
class Parser {
 public:
  Parser(std::string_view text, AllocatorConfig& config)
      : tokens_(tokens_of(text)), config_(config) {}

  Status run() {
    PEAKLINE_RETURN_IF_ERROR(read_large_segment_size());
    config_.max_non_split_rounding = config_.large_segment_size;
    at_ = 0;
    while (at_ < tokens_.size()) {
      PEAKLINE_RETURN_IF_ERROR(read_option());
      if (at_ == tokens_.size()) break;
      if (tokens_[at_] != ",") {
        return invalid_input(fmt::format(
            "allocator settings: expected ',' after option '{}', found '{}'", key_, tokens_[at_]));
      }
      ++at_;  // a comma at the end is allowed
    }
    return {};
  }

 private:
  Status read_option() {
    key_ = tokens_[at_++];
    if (is_sign(key_)) {
      return invalid_input(
          fmt::format("allocator settings: expected an option name, found '{}'", key_));
    }
    if (at_ == tokens_.size() || tokens_[at_] != ":") {
      return invalid_input(fmt::format(
          "allocator settings: option '{}' needs a value, as in '{}:VALUE'", key_, key_));
    }
    ++at_;
    if (at_ == tokens_.size() || (is_sign(tokens_[at_]) && tokens_[at_] != "[")) {
      return invalid_input(fmt::format("allocator settings: option '{}' has no value", key_));
    }
    return read_value();
  }

  Status read_value() {
    if (key_ == "expandable_segments") return read_bool(config_.expandable_segments);
    if (key_ == "max_split_size_mb") return read_size(config_.max_split_size, false);
    if (key_ == "max_non_split_rounding_mb")
      return read_size(config_.max_non_split_rounding, false);
    if (key_ == "large_segment_size_mb") return ++at_, Status{};  // was read before the others
    if (key_ == "garbage_collection_threshold") return read_threshold();
    if (key_ == "roundup_power2_divisions") return read_divisions();
    if (key_ == "per_process_memory_fraction") return read_fraction();
    if (key_ == "backend") return read_backend();
    if (key_ == "throw_on_cudamalloc_oom") {
      PEAKLINE_RETURN_IF_ERROR(require(2, 12));
      return read_bool(config_.reject_over_limit);
    }
    if (key_ == "expandable_segments_reserve") {
      PEAKLINE_RETURN_IF_ERROR(require(2, 15));
      return read_reserve();
    }
    if (key_ == "expandable_segments_reserve_by_class") {
      PEAKLINE_RETURN_IF_ERROR(require(2, 15));
      return skip_classes();
    }
    return read_without_effect();
  }

  // "0.5" of the device, or "40G". What cannot be read torch warns of, and goes on without.
  Status read_reserve() {
    std::string_view text = tokens_[at_++];
    const bool absolute = text.ends_with('G') || text.ends_with('g');
    if (absolute) text.remove_suffix(1);
    const std::optional<double> value = to_double(text);
    if (!value || *value <= 0.0) {
      config_.without_effect.push_back(key_);
    } else if (absolute) {
      const double mib = std::min(*value * 1024.0, static_cast<double>(kMaxMiB));
      config_.reserve_fraction.reset();
      config_.reserve_bytes = Bytes(static_cast<std::int64_t>(mib * static_cast<double>(kMiB)));
    } else {
      config_.reserve_bytes.reset();
      config_.reserve_fraction = std::min(*value, 1.125);
    }
    return {};
  }

  // "[name:0.5,name:40G]": for streams that C++ programs give a class, which none here has.
  Status skip_classes() {
    if (tokens_[at_] != "[") return broken_classes();
    while (++at_ < tokens_.size() && tokens_[at_] != "]") {
    }
    if (at_ == tokens_.size()) return broken_classes();
    ++at_;
    config_.without_effect.push_back(key_);
    return {};
  }

  Status broken_classes() const {
    return invalid_input(
        fmt::format("allocator settings: {} needs a list such as [serving:0.25,other:8G]", key_));
  }

  // Settings for host memory and locks: checked for their form, then put aside.
  Status read_without_effect() {
    static constexpr std::array<std::string_view, 7> kBools = {
        "pinned_use_background_threads",    "pinned_use_cuda_host_register",
        "pinned_use_hip_host_register",     "pinned_free_catch_all",
        "release_lock_on_cudamalloc",       "release_lock_on_hipmalloc",
        "graph_capture_record_stream_reuse"};
    static constexpr std::array<std::string_view, 4> kNumbers = {
        "pinned_num_register_threads", "pinned_reserve_segment_size_mb",
        "pinned_max_round_threshold_mb", "pinned_max_cached_size_mb"};
    if (std::ranges::find(kBools, std::string_view(key_)) != kBools.end()) {
      if (key_ == "pinned_free_catch_all") PEAKLINE_RETURN_IF_ERROR(require(2, 12));
      bool ignored = false;
      PEAKLINE_RETURN_IF_ERROR(read_bool(ignored));
    } else if (std::ranges::find(kNumbers, std::string_view(key_)) != kNumbers.end()) {
      if (key_.starts_with("pinned_max_")) PEAKLINE_RETURN_IF_ERROR(require(2, 13));
      if (!to_number(tokens_[at_])) return not_a_number();
      ++at_;
    } else {
      return invalid_input(fmt::format(
          "allocator settings: '{}' is not an option of torch {}.{}'s CUDA allocator; options that "
          "change memory are expandable_segments, max_split_size_mb, max_non_split_rounding_mb, "
          "roundup_power2_divisions, garbage_collection_threshold, large_segment_size_mb and "
          "per_process_memory_fraction",
          key_, config_.torch.major, config_.torch.minor));
    }
    config_.without_effect.push_back(key_);
    return {};
  }

  Status read_bool(bool& value) {
    const std::string& token = tokens_[at_];
    if (token != "True" && token != "False") {
      return invalid_input(
          fmt::format("allocator settings: {} must be True or False, not '{}'", key_, token));
    }
    value = token == "True";
    ++at_;
    return {};
  }

  Status not_a_number() const {
    return invalid_input(
        fmt::format("allocator settings: {} needs a whole number, not '{}'", key_, tokens_[at_]));
  }

  Status read_size(Bytes& value, bool above_minimum) {
    const std::optional<std::uint64_t> number = to_number(tokens_[at_]);
    if (!number) return not_a_number();
    const std::uint64_t least =
        above_minimum ? kMinLargeAlloc / kMiB + 1
                      : static_cast<std::uint64_t>(config_.large_segment_size.raw()) / kMiB;
    if (*number < least) {
      return invalid_input(
          fmt::format("allocator settings: {} must be at least {}, not {}", key_, least, *number));
    }
    value = Bytes(static_cast<std::int64_t>(std::min(*number, kMaxMiB) * kMiB));
    ++at_;
    return {};
  }

  // Other options have this one as their smallest value, so torch reads it before them.
  Status read_large_segment_size() {
    for (at_ = 0; at_ + 2 < tokens_.size(); ++at_) {
      if (tokens_[at_] != "large_segment_size_mb" || tokens_[at_ + 1] != ":") continue;
      key_ = tokens_[at_];
      at_ += 2;
      PEAKLINE_RETURN_IF_ERROR(read_size(config_.large_segment_size, true));
    }
    return {};
  }

  Status read_threshold() {
    const std::optional<double> value = to_double(tokens_[at_]);
    if (!value || *value <= 0.0 || *value >= 1.0) {
      return invalid_input(
          fmt::format("allocator settings: {} must lie between 0 and 1, both excluded, not '{}'",
                      key_, tokens_[at_]));
    }
    config_.garbage_collection_threshold = *value;
    ++at_;
    return {};
  }

  Status read_fraction() {
    const std::optional<double> value = to_double(tokens_[at_]);
    if (!value || *value < 0.0 || *value > 1.0) {
      return invalid_input(fmt::format("allocator settings: {} must lie between 0 and 1, not '{}'",
                                       key_, tokens_[at_]));
    }
    config_.memory_fraction = *value;
    ++at_;
    return {};
  }

  Status read_backend() {
    const std::string& token = tokens_[at_];
    if (token == "cudaMallocAsync") {
      return unsupported(
          "allocator settings: backend:cudaMallocAsync leaves placement to the driver, which this "
          "simulator does not model; use backend:native or leave the option out");
    }
    if (token != "native") {
      return invalid_input(fmt::format(
          "allocator settings: backend must be native or cudaMallocAsync, not '{}'", token));
    }
    ++at_;
    return {};
  }

  Status read_divisions() {
    auto& divisions = config_.roundup_power2_divisions;
    if (tokens_[at_] != "[") {
      const std::optional<std::uint64_t> value = to_number(tokens_[at_]);
      if (!value) return not_a_number();
      if (!std::has_single_bit(*value)) return not_a_power(*value, "the number of divisions");
      divisions.fill(*value);
      ++at_;
      return {};
    }
    ++at_;
    return read_division_list();
  }

  Status not_a_power(std::uint64_t value, std::string_view what) const {
    return invalid_input(fmt::format("allocator settings: {}: {} must be a power of two, not {}",
                                     key_, what, value));
  }

  // [256:1,512:2,>:4]: the first value also holds for everything below it, '>' for everything above
  // the last one; sizes between two named ones that are not named themselves are not rounded up.
  Status read_division_list() {
    auto& divisions = config_.roundup_power2_divisions;
    bool first = true;
    std::size_t last = 0;
    while (at_ < tokens_.size() && tokens_[at_] != "]") {
      const std::string size = tokens_[at_];
      if (at_ + 2 >= tokens_.size() || tokens_[at_ + 1] != ":") return broken_list();
      at_ += 2;
      const std::optional<std::uint64_t> value = to_number(tokens_[at_]);
      if (!value) return not_a_number();
      if (*value != 0 && !std::has_single_bit(*value)) {
        return not_a_power(*value, "the number of divisions");
      }
      ++at_;
      if (size == ">") {
        std::fill(divisions.begin() + std::min(last + 1, divisions.size()), divisions.end(),
                  *value);
      } else {
        const std::optional<std::uint64_t> boundary = to_number(size);
        if (!boundary) return broken_list();
        if (!std::has_single_bit(*boundary)) return not_a_power(*boundary, "a size in MiB");
        last = std::min<std::size_t>(std::bit_width(*boundary) - 1, divisions.size() - 1);
        if (first) std::fill(divisions.begin(), divisions.begin() + last, *value);
        first = false;
        divisions[last] = *value;
      }
      if (at_ < tokens_.size() && tokens_[at_] == ",") {
        ++at_;
      } else if (at_ < tokens_.size() && tokens_[at_] != "]") {
        return broken_list();
      }
    }
    if (at_ == tokens_.size()) return broken_list();
    ++at_;
    return {};
  }

  Status broken_list() const {
    return invalid_input(fmt::format(
        "allocator settings: {} needs a number, or a list such as [256:1,512:2,>:4]", key_));
  }

  Status require(int major, int minor) const {
    if (config_.torch >= TorchVersion{major, minor}) return {};
    return invalid_input(
        fmt::format("allocator settings: {} is known from torch {}.{} on, not to {}.{}", key_,
                    major, minor, config_.torch.major, config_.torch.minor));
  }

  std::vector<std::string> tokens_;
  AllocatorConfig& config_;
  std::size_t at_ = 0;
  std::string key_;
};

// One number where all are alike, else the list that torch reads.
std::string divisions_text(
    const std::array<std::uint64_t, AllocatorConfig::kRoundupIntervals>& divisions) {
  if (std::ranges::all_of(divisions, [&](std::uint64_t n) { return n == divisions[0]; })) {
    return std::to_string(divisions[0]);
  }
  std::string text = "[";
  for (std::size_t i = 0; i < divisions.size(); ++i) {
    text += fmt::format("{}{}:{}", i == 0 ? "" : ",", std::uint64_t{1} << i, divisions[i]);
  }
  return text + "]";
}

// "a:1,b:[2:3,4:5]" as pairs of key and value; spaces do not count.
std::vector<std::pair<std::string, std::string>> options_of(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> options;
  int depth = 0;
  bool in_value = false;
  bool starts = true;
  for (const std::string& token : tokens_of(text)) {
    depth += token == "[" ? 1 : token == "]" ? -1 : 0;
    if (depth == 0 && token == ",") {
      starts = true;
    } else if (starts) {
      options.emplace_back(token, "");
      starts = in_value = false;
    } else if (!in_value && token == ":") {
      in_value = true;
    } else {
      options.back().second += token;
    }
  }
  return options;
}

}  // namespace

Result<TorchVersion> parse_torch_version(std::string_view text) {
  TorchVersion version;
  const char* const end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, version.major);
  const bool dotted = major.ec == std::errc{} && major.ptr != end && *major.ptr == '.';
  const auto minor = dotted ? std::from_chars(major.ptr + 1, end, version.minor) : major;
  if (!dotted || minor.ec != std::errc{}) {
    return invalid_input(fmt::format("'{}' is not a torch version such as 2.13", text));
  }
  if (version < TorchVersion{2, 11} || version > TorchVersion{2, 15}) {
    return unsupported(fmt::format("torch {}.{} is not one of the supported releases, 2.11 to 2.15",
                                   version.major, version.minor));
  }
  return version;
}

Result<AllocatorConfig> AllocatorConfig::parse(std::string_view text, TorchVersion torch) {
  AllocatorConfig config;
  config.torch = torch;
  config.text = text;
  PEAKLINE_RETURN_IF_ERROR(Parser(text, config).run());
  return config;
}

std::string AllocatorConfig::canonical() const {
  const AllocatorConfig defaults;
  std::vector<std::string> parts;
  const auto mib = [](Bytes bytes) { return static_cast<std::uint64_t>(bytes.raw()) / kMiB; };
  if (expandable_segments) parts.emplace_back("expandable_segments:True");
  if (reserve_fraction) {
    parts.push_back(fmt::format("expandable_segments_reserve:{}", *reserve_fraction));
  } else if (reserve_bytes) {
    const double gib = static_cast<double>(reserve_bytes->raw()) / static_cast<double>(1024 * kMiB);
    parts.push_back(fmt::format("expandable_segments_reserve:{}G", gib));
  }
  if (garbage_collection_threshold > 0.0) {
    parts.push_back(fmt::format("garbage_collection_threshold:{}", garbage_collection_threshold));
  }
  if (large_segment_size != defaults.large_segment_size) {
    parts.push_back(fmt::format("large_segment_size_mb:{}", mib(large_segment_size)));
  }
  if (max_non_split_rounding != large_segment_size) {
    parts.push_back(fmt::format("max_non_split_rounding_mb:{}", mib(max_non_split_rounding)));
  }
  if (max_split_size != kUnlimited) {
    parts.push_back(fmt::format("max_split_size_mb:{}", mib(max_split_size)));
  }
  if (memory_fraction < 1.0) {
    parts.push_back(fmt::format("per_process_memory_fraction:{}", memory_fraction));
  }
  const auto rounds = [](std::uint64_t divisions) { return divisions > 1; };
  if (std::ranges::any_of(roundup_power2_divisions, rounds)) {
    parts.push_back("roundup_power2_divisions:" + divisions_text(roundup_power2_divisions));
  }
  if (reject_over_limit) parts.emplace_back("throw_on_cudamalloc_oom:True");
  return fmt::format("{}", fmt::join(parts, ","));
}

std::string add_settings(std::string_view base, std::string_view more) {
  std::vector<std::pair<std::string, std::string>> options = options_of(base);
  for (auto& [key, value] : options_of(more)) {
    const auto same = std::ranges::find(options, key, &std::pair<std::string, std::string>::first);
    if (same == options.end()) {
      options.emplace_back(std::move(key), std::move(value));
    } else {
      same->second = std::move(value);
    }
  }
  std::string text;
  for (const auto& [key, value] : options) {
    text += (text.empty() ? "" : ",") + key + (value.empty() ? "" : ":" + value);
  }
  return text;
}

std::uint64_t AllocatorConfig::round_size(std::uint64_t requested) const noexcept {
  if (requested < kMinBlockSize) return kMinBlockSize;
  constexpr int kFirstInterval = 20;  // the first entry is for sizes below 2 MiB
  const int exponent = static_cast<int>(std::bit_width(requested)) - 1;
  const std::size_t index =
      std::min<std::size_t>(std::max(0, exponent - kFirstInterval), kRoundupIntervals - 1);
  const std::uint64_t divisions = roundup_power2_divisions[index];
  if (divisions > 1 && requested > kMinBlockSize * divisions) {
    // A power of two divided by a power of two, so `step` is one as well.
    const std::uint64_t step = std::bit_floor(requested) / divisions;
    return (requested + step - 1) & ~(step - 1);
  }
  return (requested + kMinBlockSize - 1) & ~(kMinBlockSize - 1);
}

std::uint64_t AllocatorConfig::segment_size(std::uint64_t rounded) const noexcept {
  if (rounded <= kSmallSize) return kSmallBuffer;
  if (rounded < kMinLargeAlloc) return static_cast<std::uint64_t>(large_segment_size.raw());
  return (rounded + kRoundLarge - 1) / kRoundLarge * kRoundLarge;
}

}  // namespace peakline
