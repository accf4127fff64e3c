#include "report/module_table.h"

#include <algorithm>

#include "ledger/timeline.h"
#include "report/categories.h"

namespace peakline {
namespace {

std::vector<NamedBytes> named(const Dictionary& dictionary, const CategoryArray& bytes) {
  std::vector<NamedBytes> rows;
  for (std::size_t i = 0; i < dictionary.category_count(); ++i) {
    if (bytes[i] == Bytes{}) continue;
    rows.push_back({dictionary.category_label(CategoryId(static_cast<std::uint8_t>(i))), bytes[i]});
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const NamedBytes& a, const NamedBytes& b) { return a.bytes > b.bytes; });
  return rows;
}

struct Node {
  CategoryArray with_children{};
  Bytes own;
};

std::vector<Node> add_up(const Dictionary& dictionary, std::span<const Held> held) {
  std::vector<Node> nodes(dictionary.module_count());
  for (const Held& block : held) {
    if (block.module.raw() >= nodes.size()) continue;
    const CategoryId top = dictionary.top_level(known_category(dictionary, block.category));
    Node& node = nodes[block.module.raw()];
    node.own += block.bytes;
    node.with_children[top.raw()] += block.bytes;
  }
  // Parents are defined before their children, so one walk from the back reaches every root.
  for (std::size_t i = nodes.size(); i-- > 1;) {
    const ModuleId parent = dictionary.module(ModuleId(static_cast<std::uint32_t>(i))).parent;
    if (parent == ModuleId{}) continue;
    for (std::size_t c = 0; c < nodes[i].with_children.size(); ++c) {
      nodes[parent.raw()].with_children[c] += nodes[i].with_children[c];
    }
  }
  return nodes;
}

// Modules in depth-first order with their depths; 0 ("none") is left out.
struct Visit {
  ModuleId module;
  std::size_t depth;
};

std::vector<Visit> depth_first(const Dictionary& dictionary) {
  const std::size_t count = dictionary.module_count();
  std::vector<std::vector<std::uint32_t>> children(count);
  for (std::uint32_t i = 1; i < count; ++i) {
    children[dictionary.module(ModuleId(i)).parent.raw()].push_back(i);
  }
  std::vector<Visit> order;
  std::vector<Visit> open;
  const auto push_children = [&](std::uint32_t parent, std::size_t depth) {
    for (auto child = children[parent].rbegin(); child != children[parent].rend(); ++child) {
      open.push_back({ModuleId(*child), depth});
    }
  };
  push_children(0, 0);
  while (!open.empty()) {
    const Visit next = open.back();
    open.pop_back();
    order.push_back(next);
    push_children(next.module.raw(), next.depth + 1);
  }
  return order;
}

ModuleRow row_of(const Dictionary& dictionary, const Visit& visit, const Node& node,
                 const ModuleSpansPass::Spans* spans) {
  const ModuleInfo& info = dictionary.module(visit.module);
  ModuleRow row{info.path, info.type, visit.depth, {}, node.own, {}, {}, 0};
  for (const Bytes bytes : node.with_children) row.peak += bytes;
  row.by_category = named(dictionary, node.with_children);
  if (spans != nullptr) {
    for (const ModuleSpan& span : *spans) {
      row.highest_while_running = std::max(row.highest_while_running, span.highest_peak);
    }
    row.forward_calls = (*spans)[static_cast<std::size_t>(ModulePass::kForward)].calls;
  }
  return row;
}

}  // namespace

std::vector<ModuleRow> module_table(const Dictionary& dictionary, std::span<const Held> held,
                                    const ModuleSpansPass& spans, DeviceId device) {
  const std::vector<Node> nodes = add_up(dictionary, held);
  std::vector<ModuleRow> rows;
  for (const Visit& visit : depth_first(dictionary)) {
    ModuleRow row =
        row_of(dictionary, visit, nodes[visit.module.raw()], spans.spans(device, visit.module));
    if (row.peak > Bytes{} || row.highest_while_running > Bytes{}) rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<NamedBytes> by_category(const Dictionary& dictionary, std::span<const Held> held,
                                    CategoryLevel level) {
  CategoryArray bytes{};
  for (const Held& block : held) {
    CategoryId category = known_category(dictionary, block.category);
    if (level == CategoryLevel::kTop) category = dictionary.top_level(category);
    bytes[category.raw()] += block.bytes;
  }
  return named(dictionary, bytes);
}

}  // namespace peakline
