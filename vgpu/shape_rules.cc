#include "vgpu/shape_rules.h"

#include "vgpu/shape_rule_sets.h"

namespace peakline::vgpu {

ShapeRule rule_for(std::string_view name) {
  static const auto* const kRules = [] {
    auto* rules = new RuleSet;
    add_convolution_rules(*rules);
    add_dynamic_rules(*rules);
    add_grouped_mm_rules(*rules);
    add_norm_rules(*rules);
    add_recurrent_rules(*rules);
    add_simple_rules(*rules);
    return rules;
  }();
  const auto found = kRules->find(std::string(name));
  return found == kRules->end() ? nullptr : found->second;
}

}  // namespace peakline::vgpu
