// One function per file of shape rules.
#pragma once

#include <string>
#include <unordered_map>

#include "vgpu/call.h"

namespace peakline::vgpu {

using RuleSet = std::unordered_map<std::string, ShapeRule>;

void add_convolution_rules(RuleSet& rules);
void add_dynamic_rules(RuleSet& rules);
void add_grouped_mm_rules(RuleSet& rules);
void add_norm_rules(RuleSet& rules);
void add_recurrent_rules(RuleSet& rules);
void add_simple_rules(RuleSet& rules);

}  // namespace peakline::vgpu
