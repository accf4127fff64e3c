#include "vgpu/compiled_region.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <iterator>
#include <mutex>

namespace peakline::vgpu {
namespace {

// Autograd numbers its nodes as forward makes them, thread by thread: a call of a region made those
// from `first` on, up to `last`.
struct Nodes {
  std::uint64_t first;
  std::uint64_t last;  // not among them
  Certainty certainty;
};

// Backward has been through the oldest calls long ago.
constexpr std::size_t kMostCalls = 1 << 16;

std::mutex g_mutex;
std::deque<Nodes>& calls() {
  static auto* const kCalls = new std::deque<Nodes>;  // by their first node
  return *kCalls;
}
std::atomic<bool> g_any{false};
thread_local int t_depth = 0;
thread_local std::uint64_t t_first = 0;
thread_local Certainty t_certainty = Certainty::kExact;

Certainty certainty_of(std::uint64_t node) {
  const std::lock_guard guard(g_mutex);
  const auto after = std::upper_bound(
      calls().begin(), calls().end(), node,
      [](std::uint64_t number, const Nodes& nodes) { return number < nodes.first; });
  const bool is_inside = after != calls().begin() && node < std::prev(after)->last;
  return is_inside ? std::prev(after)->certainty : Certainty::kExact;
}

}  // namespace

void enter_compiled_region(Certainty certainty) {
  if (t_depth++ > 0) return;
  t_first = at::sequence_number::peek();
  t_certainty = certainty;
}

void leave_compiled_region() {
  if (--t_depth > 0) return;
  const std::uint64_t last = at::sequence_number::peek();
  if (last == t_first) return;
  const std::lock_guard guard(g_mutex);
  // Threads number their nodes apart: of two that meet, the later call is kept in order.
  if (!calls().empty() && t_first < calls().back().first) {
    const auto at = std::upper_bound(
        calls().begin(), calls().end(), t_first,
        [](std::uint64_t number, const Nodes& nodes) { return number < nodes.first; });
    calls().insert(at, {t_first, last, t_certainty});
  } else {
    calls().push_back({t_first, last, t_certainty});
  }
  if (calls().size() > kMostCalls) calls().pop_front();
  g_any.store(true, std::memory_order_release);
}

Certainty region_certainty() noexcept {
  if (t_depth > 0) return t_certainty;
  if (!g_any.load(std::memory_order_acquire)) return Certainty::kExact;
  if (torch::autograd::get_current_graph_task_id() < 0) return Certainty::kExact;
  const auto node = torch::autograd::get_current_node();
  return node != nullptr ? certainty_of(node->sequence_nr()) : Certainty::kExact;
}

void forget_compiled_regions() {
  const std::lock_guard guard(g_mutex);
  calls().clear();
  g_any.store(false);
}

}  // namespace peakline::vgpu
