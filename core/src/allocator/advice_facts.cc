#include "allocator/advice_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>

#include <peakline/category.h>

namespace peakline {
namespace {

// What every way to clip gradients calls, and a scaler of losses.
bool reads_all_gradients(std::string_view op) {
  return op.starts_with("aten::_foreach_norm") || op.starts_with("aten::linalg_vector_norm") ||
         op.starts_with("aten::_foreach_clamp") || op.starts_with("aten::_amp_foreach_non_finite");
}

bool is_gradient(CategoryId category) {
  return category == category::kGradient || category == category::kShardedGradient ||
         category == category::kUnshardedGradient;
}

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_list(std::string_view type) { return type == "Sequential" || type == "ModuleList"; }

// The name of a module inside the one at `model`, or in the outermost one; without what DDP puts around.
std::string name_in_model(std::string_view path, std::string_view model) {
  std::string_view name = path.substr(model.empty() ? path.find('.') + 1 : model.size() + 1);
  constexpr std::string_view kHeld = "module.";
  if (name.starts_with(kHeld)) name.remove_prefix(kHeld.size());
  return std::string(name);
}

// Written by who records, a line for each: what it is called, its place, and a model's path; those come
// first that are best to name.
constexpr const char* kModels = "script_models";
// What the script calls a model and its optimizer where it has both, and that place.
constexpr const char* kOptimizer = "script_optimizer";

using Words = std::vector<std::string_view>;

std::vector<Words> lines_of(const RunInfo& info, const char* name) {
  const auto split = [](std::string_view text, char at) {
    Words parts;
    for (;;) {
      const std::size_t end = text.find(at);
      parts.push_back(text.substr(0, end));
      if (end == std::string_view::npos) return parts;
      text.remove_prefix(end + 1);
    }
  };
  std::vector<Words> lines;
  const auto found = info.find(name);
  if (found == info.end()) return lines;
  for (const std::string_view line : split(found->second, '\n')) lines.push_back(split(line, '\t'));
  return lines;
}

// People paste these into their scripts, so a recording of somebody else's can put no code there.
bool is_variable(std::string_view expression) {
  return !expression.empty() && std::ranges::all_of(expression, [](unsigned char c) {
    return c >= 0x80 || std::isalnum(c) != 0 || c == '_' || c == '.';
  });
}

bool can_be_quoted(std::string_view name) {
  return std::ranges::none_of(
      name, [](unsigned char c) { return c == '"' || c == '\\' || std::iscntrl(c) != 0; });
}

std::string remark(std::string_view place) {
  return can_be_quoted(place) ? std::string(place) : std::string();
}

bool lies_below(std::string_view path, std::string_view model) {
  return path.size() > model.size() && path.starts_with(model) && path[model.size()] == '.';
}

// Goes over the events once.
class Finder {
 public:
  explicit Finder(const Dictionary& dictionary) : dictionary_(dictionary) {}

  void on(const Event& event) {
    if (std::holds_alternative<PhaseBegin>(event.body)) {
      ++open_phases_;
    } else if (std::holds_alternative<PhaseEnd>(event.body)) {
      --open_phases_;
    } else if (const auto* label = std::get_if<Label>(&event.body)) {
      if (is_gradient(label->category)) facts_.gradients.insert(label->block.raw());
      facts_.shards |= label->category == category::kUnshardedParameter;
    } else if (const auto* op = std::get_if<OpBegin>(&event.body)) {
      if (open_phases_ == 0 && !facts_.reads_all_gradients) {
        facts_.reads_all_gradients = reads_all_gradients(dictionary_.op(op->op));
      }
    } else if (const auto* enter = std::get_if<ModuleEnter>(&event.body)) {
      this->enter(*enter);
    }
    ++count_;
  }

  AdviceFacts finish(const RunInfo& info) {
    facts_.info = info;
    find_layers();
    std::erase_if(trained_, [&](const auto& call) { return !facts_.layers.contains(call.second); });
    std::map<std::uint32_t, bool> named;
    for (const auto& [event, module] : trained_) {
      facts_.trained_calls.insert(event);
      named[module] = true;
    }
    std::vector<std::string_view> paths;
    paths.reserve(named.size());
    for (const auto& [module, _] : named) paths.push_back(path(module));
    if (!std::ranges::all_of(paths, can_be_quoted)) facts_.trained_calls.clear();
    name_by_variables(paths);
    return std::move(facts_);
  }

 private:
  [[nodiscard]] std::string_view path(std::uint32_t module) const {
    return dictionary_.module(ModuleId(module)).path;
  }

  // The script's first variable that has all the layers.
  void name_by_variables(const std::vector<std::string_view>& layers) {
    std::string_view model;
    for (const Words& words : lines_of(facts_.info, kModels)) {
      if (words.size() != 3 || !is_variable(words[0])) continue;
      const auto is_below = [&](std::string_view path) { return lies_below(path, words[2]); };
      if (!std::ranges::all_of(layers, is_below)) continue;
      facts_.model = {.name = std::string(words[0]), .place = remark(words[1])};
      model = words[2];
      break;
    }
    for (const std::string_view layer : layers) {
      facts_.layer_names.push_back(name_in_model(layer, model));
    }
    for (const Words& words : lines_of(facts_.info, kOptimizer)) {
      if (words.size() != 3 || !is_variable(words[0]) || !is_variable(words[1])) continue;
      facts_.with_optimizer = {.model = std::string(words[0]),
                               .optimizer = std::string(words[1]),
                               .place = remark(words[2])};
    }
  }

  void enter(const ModuleEnter& enter) {
    std::vector<std::uint64_t>& calls = calls_[enter.module.raw()];
    if (enter.pass == ModulePass::kForward) {
      calls.push_back(count_);
    } else if (enter.pass == ModulePass::kRecompute) {
      facts_.recomputes = true;
    } else if (!calls.empty()) {
      trained_.emplace_back(calls.back(), enter.module.raw());
      calls.pop_back();
    }
  }

  void find_layers() {
    std::map<std::pair<std::uint32_t, std::string_view>, std::uint32_t> siblings;
    std::unordered_set<std::uint32_t> with_parts;
    std::unordered_set<std::uint32_t> around_those;
    for (std::uint32_t i = 1; i < dictionary_.module_count(); ++i) {
      const ModuleInfo& module = dictionary_.module(ModuleId(i));
      with_parts.insert(module.parent.raw());
      if (is_number(last_part(module.path))) ++siblings[{module.parent.raw(), module.type}];
    }
    for (const std::uint32_t i : with_parts) {
      around_those.insert(dictionary_.module(ModuleId(i)).parent.raw());
    }
    for (std::uint32_t i = 1; i < dictionary_.module_count(); ++i) {
      const ModuleInfo& module = dictionary_.module(ModuleId(i));
      // A list of modules is no more than what it holds.
      if (is_list(module.type) && around_those.contains(i)) continue;
      const bool is_layer = is_number(last_part(module.path)) && with_parts.contains(i) &&
                            siblings[{module.parent.raw(), module.type}] > 1;
      if (is_layer) facts_.layers.insert(i);
    }
    const std::unordered_set<std::uint32_t> all = facts_.layers;
    std::erase_if(facts_.layers, [&](std::uint32_t i) { return lies_in(i, all); });
  }

  [[nodiscard]] bool lies_in(std::uint32_t module,
                             const std::unordered_set<std::uint32_t>& others) const {
    // Parents come first, so ids only fall.
    for (std::uint32_t at = module; at != 0;) {
      const std::uint32_t parent = dictionary_.module(ModuleId(at)).parent.raw();
      if (parent >= at) return false;
      if (others.contains(parent)) return true;
      at = parent;
    }
    return false;
  }

  const Dictionary& dictionary_;
  AdviceFacts facts_;
  std::map<std::uint32_t, std::vector<std::uint64_t>> calls_;     // that no backward has followed
  std::vector<std::pair<std::uint64_t, std::uint32_t>> trained_;  // calls, and whose they are
  int open_phases_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace

Result<std::optional<AdviceFacts>> read_advice_facts(TraceReader& reader, std::uint64_t most) {
  Finder finder(reader.dictionary());
  std::uint64_t count = 0;
  for (;;) {
    const Result<std::span<const Event>> events = reader.next();
    if (!events.ok()) return events.status();
    if (events->empty()) return std::optional(finder.finish(reader.info()));
    count += events->size();
    if (count > most) return std::optional<AdviceFacts>();
    for (const Event& event : *events) finder.on(event);
  }
}

std::vector<std::string> name_ranges(const std::vector<std::string>& names) {
  std::map<std::string, std::vector<std::uint64_t>> numbers;  // by what stands before them
  for (const std::string& name : names) {
    const std::string_view number = last_part(name);
    std::uint64_t value = 0;
    std::from_chars(number.data(), number.data() + number.size(), value);
    numbers[name.substr(0, name.size() - number.size())].push_back(value);
  }
  std::vector<std::string> found;
  for (auto& [before, values] : numbers) {
    std::ranges::sort(values);
    for (std::size_t from = 0; from < values.size();) {
      std::size_t to = from + 1;
      while (to < values.size() && values[to] == values[to - 1] + 1) ++to;
      found.push_back(to == from + 1
                          ? fmt::format("{}{}", before, values[from])
                          : fmt::format("{}{{{}..{}}}", before, values[from], values[to - 1]));
      from = to;
    }
  }
  return found;
}

}  // namespace peakline
