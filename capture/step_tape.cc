#include "capture/step_tape.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace peakline::capture {
namespace {

// Read from the tape while steps repeat.
bool is_op(RawKind kind) { return kind == RawKind::kOpBegin || kind == RawKind::kOpEnd; }
bool is_numbered(RawKind kind) {
  return kind == RawKind::kNodeBegin || kind == RawKind::kNodesMade;
}
bool is_stack(RawKind kind) { return kind == RawKind::kStack || kind == RawKind::kBackwardStack; }
bool is_taped(RawKind kind) { return is_op(kind) || is_numbered(kind) || is_stack(kind); }

bool is_module(RawKind kind) {
  return kind == RawKind::kModuleEnter || kind == RawKind::kModuleLeave;
}

bool is_alloc(RawKind kind) { return kind == RawKind::kAlloc || kind == RawKind::kAllocEstimate; }

// What happens in the same order in every repetition. Frees do not: a garbage collector has its own
// times.
bool is_milestone(RawKind kind) {
  return is_alloc(kind) || is_module(kind) || kind == RawKind::kPhaseBegin ||
         kind == RawKind::kPhaseEnd || kind == RawKind::kLabelWalk;
}

// Of the allocation there. It comes right before it.
template <class Items>
std::uint32_t stack_before(const Items& items, std::size_t at) {
  const bool has_one = at > 0 && items[at - 1].is(RawKind::kStack);
  return has_one ? items[at - 1].raw.id : StackId{}.raw();
}

}  // namespace

void StepTape::on(const RawEvent& raw) {
  ticks_ = raw.ticks;
  if (repeating_) {
    repeat(raw);
  } else {
    watch(raw);
  }
  if (raw.kind == RawKind::kStepEnd) end_step(raw);
}

StepTape::Tape& StepTape::tape_of(std::uint16_t thread) {
  while (thread >= tapes_.size()) {
    tapes_.emplace_back();
    tapes_.back().thread = static_cast<std::uint16_t>(tapes_.size() - 1);
  }
  return tapes_[thread];
}

bool StepTape::Item::operator==(const Item& other) const noexcept {
  if (!is(other.raw.kind) || block != other.block || maker != other.maker || age != other.age) {
    return false;
  }
  const bool same_device = raw.device == other.raw.device;
  switch (raw.kind) {
    case RawKind::kOpEnd:
    case RawKind::kNodeBegin:
      return true;
    case RawKind::kAlloc:
    case RawKind::kAllocEstimate:
      return same_device && raw.size == other.raw.size;
    case RawKind::kFree:
      return same_device;
    case RawKind::kLabel:
      return same_device && raw.size == other.raw.size && raw.id == other.raw.id;
    default:
      return raw.id == other.raw.id;
  }
}

StepTape::Item StepTape::item_of(const RawEvent& raw) const {
  Item item{.raw = raw};
  if (!item.is(RawKind::kFree)) return item;
  const LiveBlock* block = out_.find(raw);
  if (block == nullptr || block->step != step_) return item;
  item.block = block->ordinal;
  item.maker = block->thread;
  return item;
}

// The event makes the block known, which then gets its number.
void StepTape::put_alloc(const RawEvent& raw, Tape& tape) {
  out_.on(raw);
  ++tape.allocs;
  if (!too_long_) tape.addresses.push_back(raw.address);
  LiveBlock* block = out_.find(raw);
  if (block == nullptr) return;
  block->thread = raw.thread;
  block->ordinal = tape.allocs;
  block->step = step_;
}

void StepTape::watch(const RawEvent& raw) {
  if (is_taped(raw.kind) || is_milestone(raw.kind) || raw.kind == RawKind::kFree) {
    Tape& tape = tape_of(raw.thread);
    if (raw.kind == RawKind::kOpEnd && tape.open == 0) return;  // it began before it was watched
    if (raw.kind == RawKind::kOpBegin) ++tape.open;
    if (raw.kind == RawKind::kOpEnd) --tape.open;
    if (is_milestone(raw.kind)) tape.in_walk = raw.kind == RawKind::kLabelWalk;
    too_long_ = too_long_ || tape.now.size() >= kLongestTape;
    if (!too_long_) tape.now.push_back(item_of(raw));
    if (is_alloc(raw.kind)) return put_alloc(raw, tape);
  }
  if (raw.kind == RawKind::kLabel) watch_label(raw);
  out_.on(raw);
}

// What a walk says of a block that will come again in the next step.
void StepTape::watch_label(const RawEvent& raw) {
  Tape& tape = tape_of(raw.thread);
  if (!tape.in_walk || too_long_) return;
  const LiveBlock* block = out_.find(raw);
  if (block == nullptr || block->ordinal == 0) return;
  if (block->category.raw() == raw.id && block->owner == raw.size) return;
  const std::uint64_t age = step_ - block->step;
  if (age > kOldestLabelled) return;
  tape.now.push_back({raw, block->ordinal, block->thread, static_cast<std::uint8_t>(age)});
}

void StepTape::repeat(const RawEvent& raw) {
  if (raw.kind == RawKind::kStack) tape_of(raw.thread).stack = raw;
  if (is_taped(raw.kind)) return;  // torch was told to stop a moment ago; the tape has these
  if (is_milestone(raw.kind)) return repeat_milestone(raw, tape_of(raw.thread));
  if (raw.kind == RawKind::kFree) return repeat_free(raw, tape_of(raw.thread));
  if (raw.kind == RawKind::kStepEnd) {
    for (Tape& tape : tapes_) end_tape(tape);
  }
  out_.on(raw);
}

// The next milestone on the tape must be this one, and come from the same place, where that was looked
// at. The ops that begin and end before it do so now.
void StepTape::repeat_milestone(const RawEvent& raw, Tape& tape) {
  std::size_t at = tape.next;
  while (at < tape.before.size() && !is_milestone(tape.before[at].raw.kind)) ++at;
  if (at == tape.before.size() || tape.before[at] != item_of(raw)) return watch_again(raw, tape);
  if (tape.stack && tape.stack->id != stack_before(tape.before, at)) return watch_again(raw, tape);
  tape.stack.reset();
  play(tape, at, raw.ticks);
  tape.next = at + 1;
  if (is_module(raw.kind)) return repeat_module(raw, tape.before[at].raw);
  if (raw.kind == RawKind::kLabelWalk) return play_labels(tape, raw.ticks);
  if (is_alloc(raw.kind)) return put_alloc(raw, tape);
  out_.on(raw);
}

// The event is not on the tape, and neither is the stack that came with it.
void StepTape::watch_again(const RawEvent& raw, Tape& tape) {
  const std::optional<RawEvent> stack = std::exchange(tape.stack, {});
  stop_repeating(raw.ticks);
  if (stack && is_alloc(raw.kind)) watch(*stack);
  watch(raw);
}

// That a module runs inside a node is known while nodes are watched.
void StepTape::repeat_module(RawEvent raw, const RawEvent& before) {
  moved_on_[raw.extra] = raw.address - before.address;
  raw.device = before.device;
  out_.on(raw);
}

// A free at its place on the tape says how far the thread's ops are. At another place it says
// nothing, but an op that has nothing left to do before its end must not appear to have freed it.
void StepTape::repeat_free(const RawEvent& raw, Tape& tape) {
  const Item wanted = item_of(raw);
  for (std::size_t at = tape.next; at < tape.before.size(); ++at) {
    const Item& item = tape.before[at];
    if (is_milestone(item.raw.kind)) break;
    if (item != wanted) continue;
    play(tape, at, raw.ticks);
    tape.next = at + 1;
    return out_.on(raw);
  }
  end_ops_that_are_over(tape);
  out_.on(raw);
}

void StepTape::end_ops_that_are_over(Tape& tape) {
  std::size_t at = tape.next;
  while (at < tape.before.size() && tape.before[at].is(RawKind::kOpEnd)) ++at;
  play(tape, at, ticks_);
}

// Nothing more happens on the thread in this step.
void StepTape::end_tape(Tape& tape) {
  while (tape.next < tape.before.size() && !is_milestone(tape.before[tape.next].raw.kind)) {
    if (tape.before[tape.next].is(RawKind::kNodeBegin)) {
      ++tape.next;
    } else {
      play(tape, tape.next + 1, ticks_);
    }
  }
}

// Lets the ops and nodes between here and `until` begin and end.
void StepTape::play(Tape& tape, std::size_t until, std::uint64_t ticks) {
  for (; tape.next < until; ++tape.next) {
    const Item& item = tape.before[tape.next];
    RawEvent raw = item.raw;
    raw.ticks = ticks;
    if (item.is(RawKind::kLabel)) play_label(raw, item);
    if (is_numbered(raw.kind)) out_.on(node_now(raw));
    if (is_stack(raw.kind)) out_.on(raw);
    if (!is_op(raw.kind)) continue;
    if (item.is(RawKind::kOpBegin)) {
      ++tape.open;
    } else {
      --tape.open;
    }
    out_.on(raw);
  }
}

RawEvent StepTape::node_now(RawEvent node) const {
  constexpr auto kNoNumber = std::numeric_limits<std::uint64_t>::max();
  const auto moved = moved_on_.find(node.extra);
  if (moved != moved_on_.end() && node.address != kNoNumber) node.address += moved->second;
  return node;
}

void StepTape::play_labels(Tape& tape, std::uint64_t ticks) {
  std::size_t end = tape.next;
  while (end < tape.before.size() && tape.before[end].is(RawKind::kLabel)) ++end;
  play(tape, end, ticks);
}

void StepTape::play_label(RawEvent label, const Item& item) {
  const Tape& maker = tapes_[item.maker];
  const auto& addresses = item.age == 0 ? maker.addresses : maker.addresses_before;
  if (item.block > addresses.size()) return;
  label.address = addresses[item.block - 1];
  const LiveBlock* block = out_.find(label);
  if (block == nullptr) return;
  const bool same = block->step == step_ - item.age && block->ordinal == item.block &&
                    block->thread == item.maker;
  if (same) out_.on(label);
}

// The tapes' steps before are those to come.
void StepTape::start_repeating() {
  if (expected_.size() == kMostRepetitions) return;
  repeating_ = true;
  moved_on_.clear();
  expected_.push_back(std::make_unique<ExpectedAllocs>());
  for (Tape& tape : tapes_) {
    tape.stack.reset();
    for (std::size_t at = 0; at < tape.before.size(); ++at) {
      const RawEvent& raw = tape.before[at].raw;
      if (!is_alloc(raw.kind)) continue;
      expected_.back()->add(tape.thread, raw.size, raw.device,
                            StackId(stack_before(tape.before, at)));
    }
  }
  expect_(expected_.back().get());
}

void StepTape::stop_repeating(std::uint64_t ticks) {
  repeating_ = false;
  expect_(nullptr);
  for (Tape& tape : tapes_) {
    for (; tape.open > 0; --tape.open) {
      out_.on({.ticks = ticks, .thread = tape.thread, .kind = RawKind::kOpEnd});
    }
    tape.before.clear();
    tape.now.clear();
    tape.in_walk = false;
  }
  too_long_ = true;  // what is left of this step is not a whole one
}

bool StepTape::steps_are_equal() const {
  const auto is_free = [](const Item& item) { return item.is(RawKind::kFree); };
  return std::ranges::all_of(tapes_, [&](const Tape& tape) {
    std::size_t i = 0;
    for (const Item& item : tape.now) {
      if (is_free(item)) continue;
      while (i < tape.before.size() && is_free(tape.before[i])) ++i;
      if (i == tape.before.size() || tape.before[i] != item) return false;
      ++i;
    }
    return std::all_of(tape.before.begin() + static_cast<std::ptrdiff_t>(i), tape.before.end(),
                       is_free);
  });
}

bool StepTape::tapes_are_used_up() const {
  return std::ranges::all_of(tapes_, [](const Tape& tape) {
    return std::none_of(tape.before.begin() + static_cast<std::ptrdiff_t>(tape.next),
                        tape.before.end(),
                        [](const Item& item) { return is_milestone(item.raw.kind); });
  });
}

void StepTape::end_step(const RawEvent& raw) {
  if (repeating_) {
    if (!tapes_are_used_up()) stop_repeating(raw.ticks);
    too_long_ = false;
  } else {
    const bool closed = std::ranges::all_of(tapes_, [](const Tape& t) { return t.open == 0; });
    const bool has_ops = std::ranges::any_of(tapes_, [](const Tape& t) { return !t.now.empty(); });
    const bool repeats = !too_long_ && closed && has_ops && steps_are_equal();
    for (Tape& tape : tapes_) {
      tape.before = too_long_ ? std::vector<Item>{} : std::move(tape.now);
      tape.now.clear();
    }
    too_long_ = false;
    if (repeats) start_repeating();
  }
  ++step_;
  for (Tape& tape : tapes_) {
    tape.next = 0;
    tape.allocs = 0;
    tape.addresses_before.swap(tape.addresses);
    tape.addresses.clear();
  }
}

void StepTape::finish() {
  if (repeating_) stop_repeating(ticks_);
}

}  // namespace peakline::capture
