#include "planner/request.h"

#include <charconv>
#include <map>
#include <sstream>

namespace peakline::planner {
namespace {

std::optional<std::vector<std::int64_t>> numbers(const std::string& text) {
  std::vector<std::int64_t> found;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    std::int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || (next < end && *next != ',')) return std::nullopt;
    found.push_back(value);
    at = next + 1;
  }
  return found;
}

std::optional<Kind> pass_of(const std::string& word) {
  if (word == "forward") return Kind::kForward;
  if (word == "input_gradient") return Kind::kInputGradient;
  if (word == "weight_gradient") return Kind::kWeightGradient;
  return std::nullopt;
}

std::optional<DataType> type_of(const std::string& word) {
  if (word == "float32") return DataType::kFloat;
  if (word == "float64") return DataType::kDouble;
  if (word == "float16") return DataType::kHalf;
  if (word == "bfloat16") return DataType::kBFloat16;
  return std::nullopt;
}

bool consistent(const Convolution& c) {
  const std::size_t rank = c.input.size();
  return (rank == 4 || rank == 5) && c.weight.size() == rank && c.output.size() == rank &&
         c.padding.size() == rank - 2 && c.stride.size() == rank - 2 &&
         c.dilation.size() == rank - 2;
}

}  // namespace

std::optional<Convolution> parse_request(std::string_view line) {
  std::istringstream words{std::string(line)};
  std::string pass;
  std::string type;
  std::string layout;
  words >> pass >> type >> layout;
  Convolution c;
  const auto known_pass = pass_of(pass);
  const auto known_type = type_of(type);
  if (!known_pass || !known_type) return std::nullopt;
  c.pass = *known_pass;
  c.type = *known_type;
  c.channels_last = layout == "channels_last";
  std::vector<std::int64_t> deterministic{0};
  std::vector<std::int64_t> tf32{1};
  const std::map<std::string, std::vector<std::int64_t>*> fields = {
      {"input", &c.input},
      {"weight", &c.weight},
      {"output", &c.output},
      {"padding", &c.padding},
      {"stride", &c.stride},
      {"dilation", &c.dilation},
      {"deterministic", &deterministic},
      {"tf32", &tf32}};
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    const auto field = fields.find(word.substr(0, equals));
    if (equals == std::string::npos || field == fields.end()) return std::nullopt;
    const auto values = numbers(word.substr(equals + 1));
    if (!values || values->empty()) return std::nullopt;
    *field->second = *values;
  }
  if (!consistent(c)) return std::nullopt;
  c.deterministic = deterministic[0] != 0;
  c.allow_tf32 = tf32[0] != 0;
  return c;
}

std::string answer(const Plan& plan) {
  std::ostringstream text;
  text << "plan engine=" << plan.engine << " workspace=" << plan.workspace
       << " unsplit=" << plan.unsplit_workspace;
  for (const auto& [name, value] : plan.knobs) text << ' ' << name << '=' << value;
  return text.str();
}

std::string answer(const Refused& refused) { return "none " + refused.what; }

}  // namespace peakline::planner
