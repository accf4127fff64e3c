#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <string_view>

#include <peakline/context.h>

namespace peakline {
namespace {

// Ops whose only work is to get memory for the op that called them. Blaming them would say nothing.
bool is_allocation_op(std::string_view name) {
  constexpr std::string_view kEmpty = "aten::empty";
  constexpr std::string_view kNewEmpty = "aten::new_empty";
  return name.starts_with(kEmpty) || name.starts_with(kNewEmpty) || name == "aten::resize_" ||
         name == "aten::resize";
}

bool is_matrix_product(std::string_view name) {
  constexpr std::array<std::string_view, 10> kNames{
      "aten::mm",      "aten::addmm",  "aten::bmm",        "aten::baddbmm",
      "aten::addmv",   "aten::linear", "aten::_scaled_mm", "aten::_addmm_activation",
      "aten::_int_mm", "aten::mv"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

// Programs that make up a new name each time are not followed for ever.
constexpr std::size_t kMaxRegions = std::size_t{1} << 16;
constexpr std::size_t kMaxRegionDepth = 64;

std::size_t index(Phase phase) { return static_cast<std::size_t>(phase); }

}  // namespace

Context::Context(const Dictionary& dictionary, Diagnostics& diagnostics)
    : dictionary_(dictionary), diagnostics_(diagnostics) {}

Context::ThreadState& Context::state(ThreadId thread) {
  if (thread.raw() >= threads_.size()) threads_.resize(thread.raw() + std::size_t{1});
  return threads_[thread.raw()];
}

const Context::ThreadState* Context::find(ThreadId thread) const noexcept {
  return thread.raw() < threads_.size() ? &threads_[thread.raw()] : nullptr;
}

std::uint8_t Context::traits(OpId op) {
  if (op.raw() >= traits_.size()) {
    // Grown to the whole table at once; an id beyond it is unknown and has no traits.
    traits_.resize(dictionary_.op_count(), 0);
    if (op.raw() >= traits_.size()) return 0;
  }
  std::uint8_t& known = traits_[op.raw()];
  if (known == 0) {
    const std::string_view name = dictionary_.op(op);
    known = kKnown;
    if (is_allocation_op(name)) known |= kOnlyAllocates;
    if (is_matrix_product(name)) known |= kMultiplies;
  }
  return known;
}

void Context::on(ThreadId thread, const OpBegin& begin) {
  if (begin.op.raw() >= dictionary_.op_count()) diagnostics_.count(Loss::kUnknownId);
  const bool allocates = (traits(begin.op) & kOnlyAllocates) != 0;
  state(thread).ops.push_back({begin.op, ++op_serial_, allocates});
  if (begin.op.raw() < traits_.size()) {
    if (calls_.size() < traits_.size()) calls_.resize(traits_.size(), 0);
    ++calls_[begin.op.raw()];
  }
}

void Context::on(ThreadId thread, const OpEnd&) {
  std::vector<OpFrame>& ops = state(thread).ops;
  if (ops.empty()) {
    diagnostics_.count(Loss::kOpEndWithoutBegin);
    return;
  }
  ops.pop_back();
}

void Context::begin_backward() { ++progress_.backwards_begun; }

void Context::on(ThreadId thread, const ModuleEnter& enter, std::uint64_t event) {
  if (enter.module.raw() >= dictionary_.module_count()) diagnostics_.count(Loss::kUnknownId);
  std::vector<ModuleFrame>& modules = state(thread).modules;
  ModuleFrame frame{enter.module, enter.pass, event, 0, static_cast<std::uint32_t>(phases_.size())};
  if (!modules.empty()) frame.recompute = modules.back().recompute;
  progress_.any_module = true;
  switch (enter.pass) {
    case ModulePass::kForward:
      if (modules.empty()) ++progress_.forwards_in_step;
      break;
    case ModulePass::kRecompute:
      if (frame.recompute == 0) {
        frame.recompute = ++recompute_serial_;
        recomputing_.push_back(frame.recompute);
      }
      break;
    case ModulePass::kBackward:
      if (open_phases_[index(Phase::kBackward)] == 0 && open_backward_modules_ == 0) {
        begin_backward();
      }
      ++open_backward_modules_;
      break;
  }
  ++open_modules_;
  modules.push_back(frame);
}

void Context::close(const ModuleFrame& frame) {
  --open_modules_;
  if (frame.pass == ModulePass::kBackward) {
    --open_backward_modules_;
    if (open_phases_[index(Phase::kBackward)] == 0 && open_backward_modules_ == 0) {
      ++progress_.backwards_ended;
    }
  }
}

const std::vector<ModuleFrame>& Context::on(ThreadId thread, const ModuleLeave& leave) {
  closed_.clear();
  std::vector<ModuleFrame>& modules = state(thread).modules;
  const auto match = std::find_if(modules.rbegin(), modules.rend(), [&](const ModuleFrame& frame) {
    return frame.module == leave.module && frame.pass == leave.pass;
  });
  if (match == modules.rend()) {
    diagnostics_.count(Loss::kModuleLeaveWithoutEnter);
    return closed_;
  }
  if (leave.pass == ModulePass::kBackward) {
    // Backward modules overlap: autograd may finish an outer one's work before an inner one's.
    closed_.push_back(*match);
    modules.erase(std::next(match).base());
  } else {
    // A backward that ran inside the call may still be in one of its modules.
    const auto ends = [](const ModuleFrame& frame) { return frame.pass != ModulePass::kBackward; };
    const auto first = std::next(match).base();
    const auto above = static_cast<std::size_t>(first - modules.begin());
    const auto stays = std::stable_partition(first, modules.end(), std::not_fn(ends));
    closed_.assign(std::make_reverse_iterator(modules.end()), std::make_reverse_iterator(stays));
    diagnostics_.count(Loss::kModuleNeverLeft, closed_.size() - 1);
    modules.erase(stays, modules.end());
    const std::uint32_t around = above == 0 ? 0 : modules[above - 1].recompute;
    for (std::size_t i = above; i < modules.size(); ++i) modules[i].recompute = around;
  }
  for (const ModuleFrame& frame : closed_) close(frame);

  const std::uint32_t still = modules.empty() ? 0 : modules.back().recompute;
  for (const ModuleFrame& frame : closed_) {
    if (frame.recompute != still) std::erase(recomputing_, frame.recompute);
  }
  return closed_;
}

void Context::on(ThreadId thread, const PhaseBegin& begin) {
  if (begin.phase == Phase::kBackward) backward_caller_ = thread;
  if (begin.phase == Phase::kBackward && open_phases_[index(Phase::kBackward)] == 0 &&
      open_backward_modules_ == 0) {
    begin_backward();
  }
  ++open_phases_[index(begin.phase)];
  phases_.push_back(begin.phase);
}

void Context::on(const PhaseEnd& end) {
  std::uint32_t& open = open_phases_[index(end.phase)];
  if (open == 0) {
    diagnostics_.count(Loss::kPhaseEndWithoutBegin);
    return;
  }
  phases_.erase(std::next(std::find(phases_.rbegin(), phases_.rend(), end.phase)).base());
  if (--open > 0) return;
  if (end.phase == Phase::kOptimizer) ++progress_.optimizers_ended;
  if (end.phase == Phase::kBackward && open_backward_modules_ == 0) ++progress_.backwards_ended;
}

void Context::on(const StepEnd&) {
  ++progress_.steps;
  progress_.forwards_in_step = 0;
}

void Context::on(const OutOfMemory& failure) {
  if (failure.kind == OutOfMemory::Kind::kFailed) ++progress_.out_of_memory;
}

void Context::on(ThreadId thread, const CallStack& call) {
  const std::size_t known = dictionary_.stack_count();
  if (call.stack.raw() >= known || call.forward.raw() >= known) {
    diagnostics_.count(Loss::kUnknownId);
  }
  state(thread).call = call;
}

void Context::on(ThreadId thread, const RegionBegin& begin) {
  if (begin.name.raw() >= dictionary_.name_count()) diagnostics_.count(Loss::kUnknownId);
  std::vector<RegionId>& open = state(thread).regions;
  const RegionId around = open.empty() ? RegionId{} : open.back();
  const auto found = region_index_.find({around, begin.name});
  RegionId region = around;  // when there are too many
  if (found != region_index_.end()) {
    region = found->second;
  } else if (regions_.size() < kMaxRegions && open.size() < kMaxRegionDepth) {
    region = RegionId(static_cast<std::uint32_t>(regions_.size()));
    regions_.push_back({begin.name, around});
    region_index_.emplace(std::pair(around, begin.name), region);
  }
  open.push_back(region);
}

void Context::on(ThreadId thread, const RegionEnd&) {
  std::vector<RegionId>& open = state(thread).regions;
  if (open.empty()) return diagnostics_.count(Loss::kRegionEndWithoutBegin);
  open.pop_back();
}

CallStack Context::call(ThreadId thread) const noexcept {
  const ThreadState* state = find(thread);
  return state == nullptr ? CallStack{} : state->call;
}

void Context::call_done(ThreadId thread) noexcept {
  if (thread.raw() < threads_.size()) threads_[thread.raw()].call = {};
}

RegionId Context::region(ThreadId thread) const noexcept {
  const ThreadState* own = find(thread);
  if (own != nullptr && !own->regions.empty()) return own->regions.back();
  if (open_phases_[index(Phase::kBackward)] == 0) return {};
  const ThreadState* caller = find(backward_caller_);
  return caller == nullptr || caller->regions.empty() ? RegionId{} : caller->regions.back();
}

const RegionInfo& Context::region_info(RegionId id) const noexcept {
  return id.raw() < regions_.size() ? regions_[id.raw()] : regions_.front();
}

std::string Context::region_path(RegionId id) const {
  std::string path;
  for (; id != RegionId{}; id = region_info(id).around) {
    const std::string_view name = dictionary_.name(region_info(id).name);
    if (!path.empty()) path.insert(0, " / ");
    path.insert(0, name);
  }
  return path;
}

void Context::finish() { diagnostics_.count(Loss::kModuleNeverLeft, open_modules_); }

OpFrame Context::op(ThreadId thread) const noexcept {
  const ThreadState* state = find(thread);
  if (state == nullptr || state->ops.empty()) return {};
  for (auto frame = state->ops.rbegin(); frame != state->ops.rend(); ++frame) {
    if (!frame->only_allocates) return *frame;
  }
  return state->ops.back();
}

bool Context::runs(ThreadId thread, std::uint64_t serial) const noexcept {
  const ThreadState* state = find(thread);
  if (serial == 0 || state == nullptr) return false;
  // Serials grow from the bottom of a stack to its top.
  for (auto frame = state->ops.rbegin(); frame != state->ops.rend(); ++frame) {
    if (frame->serial <= serial) return frame->serial == serial;
  }
  return false;
}

ModuleId Context::module(ThreadId thread) const noexcept {
  const ThreadState* state = find(thread);
  return state == nullptr || state->modules.empty() ? ModuleId{} : state->modules.back().module;
}

std::optional<std::uint64_t> Context::module_call(ThreadId thread) const noexcept {
  const ThreadState* state = find(thread);
  if (state == nullptr || state->modules.empty()) return std::nullopt;
  return state->modules.back().enter_event;
}

bool Context::runs_module(ThreadId thread, std::uint64_t entered) const noexcept {
  const ThreadState* state = find(thread);
  if (state == nullptr) return false;
  return std::any_of(state->modules.rbegin(), state->modules.rend(),
                     [&](const ModuleFrame& frame) { return frame.enter_event == entered; });
}

// Phases nest: what an optimizer's closure runs is forward and backward, although a step of the
// optimizer is around it. So the innermost decides, be it a phase or a module's pass.
Era Context::era(ThreadId thread) const noexcept {
  const ThreadState* state = find(thread);
  const ModuleFrame* top =
      state == nullptr || state->modules.empty() ? nullptr : &state->modules.back();
  const Phase innermost = phases_.empty() ? Phase::kForward : phases_.back();
  const bool module_is_innermost = top != nullptr && top->phases >= phases_.size();
  if (innermost == Phase::kOptimizer && !module_is_innermost) return Era::kOptimizer;
  if (top != nullptr && top->recompute != 0) return Era::kRecompute;
  if (top != nullptr && top->pass == ModulePass::kBackward) return Era::kBackward;
  return innermost == Phase::kBackward ? Era::kBackward : Era::kForward;
}

std::uint32_t Context::recompute(ThreadId thread) const noexcept {
  const ThreadState* state = find(thread);
  return state == nullptr || state->modules.empty() ? 0 : state->modules.back().recompute;
}

bool Context::recompute_ended(std::uint32_t serial) const noexcept {
  return std::find(recomputing_.begin(), recomputing_.end(), serial) == recomputing_.end();
}

std::uint64_t Context::calls(OpId op) const noexcept {
  return op.raw() < calls_.size() ? calls_[op.raw()] : 0;
}

bool Context::multiplies_matrices(OpId op) const noexcept {
  return op.raw() < traits_.size() && (traits_[op.raw()] & kMultiplies) != 0;
}

bool Context::only_allocates(OpId op) const noexcept {
  if (op == OpId{}) return op_serial_ > 0;
  return op.raw() < traits_.size() && (traits_[op.raw()] & kOnlyAllocates) != 0;
}

}  // namespace peakline
