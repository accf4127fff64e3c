#include "vgpu/rules.h"

#include <string>
#include <unordered_map>

namespace peakline::vgpu {

ShapeRule rule_for(std::string_view name) {
  static const auto* const kRules = new std::unordered_map<std::string, ShapeRule>{};
  const auto found = kRules->find(std::string(name));
  return found == kRules->end() ? nullptr : found->second;
}

}  // namespace peakline::vgpu
