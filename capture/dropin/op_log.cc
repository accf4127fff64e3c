#include "capture/dropin/op_log.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/graph_task.h>

#include <utility>

namespace peakline::dropin {
namespace {

const char* moment_now() {
  if (torch::autograd::get_current_graph_task_id() == -1) return "outside";
  return at::GradMode::is_enabled() ? "recompute" : "backward";
}

}  // namespace

void OpLog::start() {
  listening_.emplace(shared_from_this(), capture::Wants{.host_memory = !read_, .ops = true});
}

void OpLog::stop() { listening_.reset(); }

void OpLog::set_prefix(std::string prefix) {
  std::lock_guard<std::mutex> lock(mutex_);
  prefix_ = std::move(prefix);
}

std::vector<OpLog::Row> OpLog::take() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(rows_, {});
}

MemoryLevels OpLog::levels() {
  if (read_) return read_();
  std::lock_guard<std::mutex> lock(mutex_);
  const std::int64_t bytes = host_.counts.total;
  return {bytes, bytes, bytes};
}

void OpLog::on_op_end(const at::RecordFunction&, const capture::OpFacts& op) {
  // Upstream leaves out detach; detach_ is autograd's own and reaches no dispatch mode.
  if (op.name == "aten::detach" || op.name == "aten::detach_") return;
  // Where torch keeps dispatch modes out, its own helpers run, such as those inside torch.tensor().
  if (c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Python)) return;
  const MemoryLevels now = levels();
  std::lock_guard<std::mutex> lock(mutex_);
  rows_.push_back({prefix_, &op, now, moment_now()});
}

void OpLog::on_alloc(const capture::MemoryReport& report) {
  on_free(report);  // whatever was there, its free was out of sight
  std::lock_guard<std::mutex> lock(mutex_);
  host_.add({report.address, static_cast<std::int64_t>(report.bytes)});
}

void OpLog::on_free(const capture::MemoryReport& report) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (const Block* gone = host_.find(report.address)) host_.remove(*gone);
}

OpLog::ReadLevels device_levels(c10::DeviceType type) {
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(type));
  if (allocator == nullptr || !allocator->initialized()) return {};
  return [allocator, guard = c10::impl::VirtualGuardImpl(type)] {
    constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const auto stats = allocator->getDeviceStats(guard.getDevice().index());
    return MemoryLevels{stats.allocated_bytes[kAll].current, stats.active_bytes[kAll].current,
                        stats.reserved_bytes[kAll].current};
  };
}

}  // namespace peakline::dropin
