#include "vgpu/shape_functions.h"

#include <ATen/MetaFunctions.h>
#include <ATen/Operators.h>

#include <unordered_map>

namespace peakline::vgpu {
namespace {

using Table = std::unordered_map<std::string, c10::KernelFunction>;

template <class Op>
void add(Table& table, typename Op::schema* function) {
  std::string name = Op::name;
  if (*Op::overload_name != 0) name += std::string(".") + Op::overload_name;
  table.emplace(std::move(name), c10::KernelFunction::makeFromUnboxedRuntimeFunction(function));
}

// A function whose arguments are not the op's own (symbolic sizes) is left to the dispatcher.
#define SHAPE_FUNCTION(op, function)                                                      \
  [&]<class Op>() {                                                                       \
    if constexpr (requires { static_cast<typename Op::schema*>(&at::meta::function); }) { \
      add<Op>(table, static_cast<typename Op::schema*>(&at::meta::function));             \
    }                                                                                     \
  }.template operator()<at::_ops::op>();

Table make_table() {
  Table table;
#include "shape_functions.inc"
  return table;
}

#undef SHAPE_FUNCTION

}  // namespace

const c10::KernelFunction* shape_function(const std::string& full_name) {
  static const auto* const kTable = new Table(make_table());
  const auto found = kTable->find(full_name);
  return found == kTable->end() ? nullptr : &found->second;
}

}  // namespace peakline::vgpu
