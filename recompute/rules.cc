#include "recompute/rules.h"

#include <algorithm>

namespace peakline::recompute {
namespace {

int place_of_dropout(const c10::FunctionSchema& schema) {
  const std::vector<c10::Argument>& arguments = schema.arguments();
  const auto found = std::ranges::find(arguments, "dropout_p", &c10::Argument::name);
  return found == arguments.end() ? -1 : static_cast<int>(found - arguments.begin());
}

bool gives_view(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.returns(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

}  // namespace

std::string name_of(const c10::OperatorHandle& op) {
  std::string name = op.operator_name().name;
  if (const std::size_t colons = name.find("::"); colons != std::string::npos) {
    name.replace(colons, 2, ".");
  }
  const std::string& overload = op.operator_name().overload_name;
  return name + "." + (overload.empty() ? "default" : overload);
}

const Rule& Rules::of(const c10::OperatorHandle& op) {
  const std::lock_guard guard(mutex_);
  std::unique_ptr<Rule>& rule = known_[op];
  if (!rule) rule = std::make_unique<Rule>(make(op));
  return *rule;
}

Rule Rules::make(const c10::OperatorHandle& op) const {
  Rule rule;
  const std::string name = name_of(op);
  if (never_.contains(name)) return rule;
  if (const auto found = keep_.find(name); found != keep_.end()) rule.keep = &found->second;
  rule.random = op.hasTag(at::Tag::nondeterministic_seeded);
  rule.dropout = place_of_dropout(op.schema());
  rule.returns = static_cast<int>(op.schema().returns().size());
  rule.view = gives_view(op.schema());
  return rule;
}

}  // namespace peakline::recompute
