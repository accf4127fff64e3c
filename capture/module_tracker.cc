#include "capture/module_tracker.h"

#include <limits>

namespace peakline::capture {

ModuleTracker::ThreadState& ModuleTracker::state(std::uint16_t thread) {
  if (thread >= threads_.size()) threads_.resize(thread + std::size_t{1});
  return threads_[thread];
}

void ModuleTracker::enter(const RawEvent& raw) {
  ThreadState& state = this->state(raw.thread);
  const ModulePass pass = raw.device != 0 ? ModulePass::kRecompute : ModulePass::kForward;
  if (state.calls.empty() && pass == ModulePass::kForward) {
    state.forward_phase = true;
    output_.emit(raw.thread, PhaseBegin{Phase::kForward});
  }
  const FrameId around = state.calls.empty() ? 0 : state.calls.back().frame;
  const FrameId frame = frames_.child(around, ModuleId(raw.id));
  state.calls.push_back({frame, pass});
  frames_.note(raw.extra, raw.address, frame);
  output_.emit(raw.thread, ModuleEnter{ModuleId(raw.id), pass});
}

void ModuleTracker::leave(const RawEvent& raw) {
  ThreadState& state = this->state(raw.thread);
  if (state.calls.empty() || frames_.module(state.calls.back().frame) != ModuleId(raw.id)) return;
  const Call call = state.calls.back();
  state.calls.pop_back();
  frames_.note(raw.extra, raw.address, state.calls.empty() ? 0 : state.calls.back().frame);
  output_.emit(raw.thread, ModuleLeave{ModuleId(raw.id), call.pass});
  if (state.calls.empty() && state.forward_phase) {
    state.forward_phase = false;
    output_.emit(raw.thread, PhaseEnd{Phase::kForward});
  }
}

void ModuleTracker::node_begin(const RawEvent& raw) {
  const std::size_t depth = raw.id;
  close_backward(raw.thread, depth);
  std::vector<FrameId>& backward = state(raw.thread).backward;
  backward.resize(depth, 0);
  // Nodes that add into a parameter's gradient belong to no forward op: they carry the largest
  // number, and go to the module whose backward made the gradient.
  if (raw.address == std::numeric_limits<std::uint64_t>::max()) return;
  const FrameId to = frames_.find(raw.extra, raw.address);
  move(raw.thread, backward.back(), to);
  backward.back() = to;
}

void ModuleTracker::backward_end() {
  for (std::size_t thread = 0; thread < threads_.size(); ++thread) {
    close_backward(static_cast<std::uint16_t>(thread), 0);
  }
}

void ModuleTracker::finish() {
  backward_end();
  for (std::size_t thread = 0; thread < threads_.size(); ++thread) {
    RawEvent leave{};
    leave.thread = static_cast<std::uint16_t>(thread);
    while (!threads_[thread].calls.empty()) {
      leave.id = frames_.module(threads_[thread].calls.back().frame).raw();
      this->leave(leave);
    }
  }
}

// Leaves what only `from` is in and enters what only `to` is in.
void ModuleTracker::move(std::uint16_t thread, FrameId from, FrameId to) {
  if (from == to) return;
  frames_.chain(from, old_chain_);
  frames_.chain(to, new_chain_);
  std::size_t common = 0;
  while (common < old_chain_.size() && common < new_chain_.size() &&
         old_chain_[common] == new_chain_[common]) {
    ++common;
  }
  for (std::size_t i = old_chain_.size(); i > common; --i) {
    output_.emit(thread, ModuleLeave{old_chain_[i - 1], ModulePass::kBackward});
  }
  for (std::size_t i = common; i < new_chain_.size(); ++i) {
    output_.emit(thread, ModuleEnter{new_chain_[i], ModulePass::kBackward});
  }
}

void ModuleTracker::close_backward(std::uint16_t thread, std::size_t keep) {
  std::vector<FrameId>& backward = state(thread).backward;
  while (backward.size() > keep) {
    move(thread, backward.back(), 0);
    backward.pop_back();
  }
}

}  // namespace peakline::capture
