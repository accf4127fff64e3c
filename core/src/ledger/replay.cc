#include <type_traits>

#include <peakline/replay.h>

#include "base/capped.h"

namespace peakline {

Replay::Replay(const Dictionary& dictionary)
    : dictionary_(dictionary), ledger_(diagnostics_), context_(dictionary, diagnostics_) {}

Now Replay::now(ThreadId thread) const {
  return {count_, time_, thread, ledger_, context_, dictionary_};
}

Birth Replay::birth(ThreadId thread, std::uint64_t op_call) const {
  return {count_,
          op_call,
          context_.progress(),
          context_.recompute(thread),
          context_.module_call(thread),
          thread,
          context_.era(thread),
          context_.call(thread),
          context_.region(thread)};
}

void Replay::alloc(ThreadId thread, const Alloc& alloc) {
  const OpFrame op = context_.op(thread);
  const Block* block = ledger_.on(alloc, birth(thread, op.serial), context_.module(thread), op.op);
  context_.call_done(thread);
  if (block == nullptr) return;
  const Now here = now(thread);
  for (Pass* pass : passes_) pass->on_alloc(here, *block);
}

void Replay::free(ThreadId thread, const Free& free) {
  const Block* block = ledger_.on(free);
  if (block == nullptr) return;
  const CategoryId category = resolve_category(*block, context_, false);
  const Now here = now(thread);
  for (Pass* pass : passes_) pass->on_free(here, *block, category);
}

void Replay::resize(ThreadId thread, const Resize& resize) {
  const Block* before = ledger_.on(resize, count_);
  if (before == nullptr) return;
  const CategoryId category = resolve_category(*before, context_, true);
  const Block* after = ledger_.find(resize.block);
  const Now here = now(thread);
  for (Pass* pass : passes_) {
    pass->on_free(here, *before, category);
    pass->on_alloc(here, *after);
  }
}

void Replay::enter(ThreadId thread, const ModuleEnter& enter) {
  context_.on(thread, enter, count_);
  const Now here = now(thread);
  const ModuleFrame frame{enter.module, enter.pass, count_, context_.recompute(thread)};
  for (Pass* pass : passes_) pass->on_module_enter(here, frame);
}

void Replay::leave(ThreadId thread, const ModuleLeave& leave) {
  const std::vector<ModuleFrame>& closed = context_.on(thread, leave);
  const Now here = now(thread);
  for (const ModuleFrame& frame : closed) {
    for (Pass* pass : passes_) pass->on_module_leave(here, frame);
  }
}

void Replay::lost(const Lost& lost) {
  const Loss loss = Diagnostics::find(dictionary_.name(lost.what));
  diagnostics_.count(loss == Loss::kCount_ ? Loss::kOther : loss, lost.count);
}

// One overload per kind of event.
struct Replay::Dispatch {
  Replay& replay;
  const Event& event;

  void operator()(const OpBegin& e) const { replay.context_.on(event.thread, e); }
  void operator()(const OpEnd& e) const { replay.context_.on(event.thread, e); }
  void operator()(const Alloc& e) const { replay.alloc(event.thread, e); }
  void operator()(const Free& e) const { replay.free(event.thread, e); }
  void operator()(const Resize& e) const { replay.resize(event.thread, e); }
  void operator()(const Label& e) const { replay.ledger_.on(e); }
  void operator()(const Sureness& e) const { replay.ledger_.on(e); }
  void operator()(const ModuleEnter& e) const { replay.enter(event.thread, e); }
  void operator()(const ModuleLeave& e) const { replay.leave(event.thread, e); }
  void operator()(const Lost& e) const { replay.lost(e); }
  void operator()(const CallStack& e) const { replay.context_.on(event.thread, e); }
  void operator()(const RegionBegin& e) const {
    replay.context_.on(event.thread, e);
    other();
  }
  void operator()(const RegionEnd& e) const {
    other();
    replay.context_.on(event.thread, e);
  }
  void operator()(const PhaseBegin& e) const {
    replay.context_.on(event.thread, e);
    other();
  }
  void operator()(const PhaseEnd& e) const {
    replay.context_.on(e);
    other();
  }
  void operator()(const StepEnd& e) const {
    replay.context_.on(e);
    const Now here = replay.now(event.thread);
    for (Pass* pass : replay.passes_) pass->on_step_end(here);
  }
  void operator()(const SegmentAlloc& e) const { reserved(e); }
  void operator()(const SegmentFree& e) const { reserved(e); }
  void operator()(const Reserved& e) const { reserved(e); }
  void operator()(const OutOfMemory& e) const {
    replay.ledger_.on(e);
    replay.context_.on(e);
    other();
    replay.context_.call_done(event.thread);
  }
  void operator()(const FreeCompleted&) const { other(); }
  void operator()(const Marker&) const { other(); }
  void operator()(const Collective&) const { other(); }
  void operator()(const StreamUse&) const { other(); }
  void operator()(const EmptyCache&) const { other(); }

  template <class E>
  void reserved(const E& e) const {
    replay.ledger_.on(e);
    if (e.bytes < Bytes{} || e.bytes > kMostBytes) return;  // the ledger has counted it
    const Now here = replay.now(event.thread);
    for (Pass* pass : replay.passes_) {
      if constexpr (!std::is_same_v<E, Reserved>) pass->on_segment(here, e);
      pass->on_reserved(here, e.device);
    }
  }
  void other() const {
    const Now here = replay.now(event.thread);
    for (Pass* pass : replay.passes_) pass->on_other(here, event);
  }
};

void Replay::on(const Event& event) {
  time_ = event.time;
  visit_event(Dispatch{*this, event}, event.body);
  ++count_;
}

void Replay::finish() {
  context_.finish();
  const Now here = now(ThreadId{});
  for (Pass* pass : passes_) pass->finish(here);
}

Result<Diagnostics> replay(TraceReader& reader, std::span<Pass* const> passes) {
  Replay replay(reader.dictionary());
  for (Pass* pass : passes) replay.add(*pass);
  for (;;) {
    Result<std::span<const Event>> events = reader.next();
    if (!events.ok()) return events.status();
    if (events->empty()) break;
    for (const Event& event : *events) replay.on(event);
  }
  replay.finish();
  Diagnostics all = replay.diagnostics();
  all.merge(reader.diagnostics());
  return all;
}

}  // namespace peakline
