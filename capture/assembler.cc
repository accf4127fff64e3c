#include "capture/assembler.h"

#include <algorithm>
#include <utility>

#include <peakline/category.h>

namespace peakline::capture {

Assembler::Assembler(TraceWriter& writer, std::uint8_t host_device, std::uint64_t stacks_from)
    : writer_(writer), modules_(*this), host_device_(host_device), stacks_from_(stacks_from) {
  scale_.start();
}

void Assembler::emit(std::uint16_t thread, const EventBody& body) {
  writer_.write({now_, ThreadId(thread), body});
}

void Assembler::on(const RawEvent& raw) {
  // Counters of two processors may differ by a little; the recording's time never goes back.
  now_ = std::max(now_, TimeNs(static_cast<std::int64_t>(scale_.ns(raw.ticks))));
  switch (raw.kind) {
    case RawKind::kOpBegin:
      return emit(raw.thread, OpBegin{OpId(raw.id)});
    case RawKind::kOpEnd:
      return emit(raw.thread, OpEnd{});
    case RawKind::kModuleEnter:
      return modules_.enter(raw);
    case RawKind::kModuleLeave:
      return modules_.leave(raw);
    case RawKind::kNodeBegin:
      return node_begin(raw);
    case RawKind::kPhaseBegin:
    case RawKind::kPhaseEnd:
      return on_phase(raw);
    case RawKind::kStepEnd:
      return emit(raw.thread, StepEnd{});
    case RawKind::kMarker:
      return emit(raw.thread, Marker{NameId(raw.id)});
    case RawKind::kCollective:
      return emit(raw.thread,
                  Collective{NameId(raw.id), NameId{}, Bytes(static_cast<std::int64_t>(raw.size))});
    case RawKind::kLost:
      return lost_.count(static_cast<Loss>(raw.id), raw.size);
    default:
      if (!on_call(raw)) on_memory(raw);
  }
}

// False when it is about something else.
bool Assembler::on_call(const RawEvent& raw) {
  const Call call{StackId(raw.id), StackId(static_cast<std::uint32_t>(raw.size))};
  switch (raw.kind) {
    case RawKind::kStack:
      thread(raw).call = call;
      return true;
    case RawKind::kBackwardStack:
      backward_call_ = call;
      return true;
    case RawKind::kNodesMade:
      forward_stacks_.note(raw.extra, raw.address, raw.id);
      return true;
    case RawKind::kRegionBegin:
      emit(raw.thread, RegionBegin{NameId(raw.id)});
      return true;
    case RawKind::kRegionEnd:
      emit(raw.thread, RegionEnd{});
      return true;
    default:
      return false;
  }
}

Assembler::Thread& Assembler::thread(const RawEvent& raw) {
  if (raw.thread >= threads_.size()) threads_.resize(raw.thread + std::size_t{1});
  return threads_[raw.thread];
}

void Assembler::node_begin(const RawEvent& raw) {
  modules_.node_begin(raw);
  std::vector<std::uint32_t>& forward = thread(raw).forward;
  forward.resize(raw.id, 0);
  // A node without a number adds up what the one before it has made.
  if (raw.address == std::numeric_limits<std::uint64_t>::max()) return;
  forward.back() = forward_stacks_.find(raw.extra, raw.address);
}

// While a node runs and no Python of the program's own does, the line that made the node says more
// than the one that called backward. Autograd's own threads run no Python at all.
CallStack Assembler::call_of(const RawEvent& raw) {
  Thread& here = thread(raw);
  const Call call = std::exchange(here.call, {});
  const bool own_code = call.own != StackId{} && call.own != backward_call_.own;
  if (backwards_ == 0 || here.forward.empty() || own_code) return {call.stack, StackId{}};
  const bool wanted = call.stack != StackId{} || raw.size >= stacks_from_;
  if (!wanted) return {};
  const StackId caller = call.own == StackId{} ? backward_call_.stack : call.stack;
  return {caller, StackId(here.forward.back())};
}

void Assembler::write_call(const RawEvent& raw) {
  const CallStack call = call_of(raw);
  if (call.stack != StackId{} || call.forward != StackId{}) emit(raw.thread, call);
}

void Assembler::on_memory(const RawEvent& raw) {
  switch (raw.kind) {
    case RawKind::kAlloc:
    case RawKind::kAllocEstimate:
      return alloc(raw);
    case RawKind::kAdopt:
      if (find(raw) == nullptr) alloc(raw);
      return;
    case RawKind::kFree:
      return free(raw);
    case RawKind::kFreeWaits:
      return free_waits(raw);
    case RawKind::kFreeCompleted:
      return free_completed(raw);
    case RawKind::kResize:
      return resize(raw);
    case RawKind::kLabel:
      return label(raw);
    case RawKind::kSureness:
      return sureness(raw);
    case RawKind::kTotal:
      return total(raw);
    case RawKind::kForeignBlock:
      return foreign(raw);
    default:
      return on_allocator(raw);
  }
}

void Assembler::on_allocator(const RawEvent& raw) {
  const DeviceId where(raw.device);
  const Bytes size(static_cast<std::int64_t>(raw.size));
  switch (raw.kind) {
    case RawKind::kSegmentAlloc:
      return emit(raw.thread, SegmentAlloc{Address(raw.address), size, StreamId(raw.id), where});
    case RawKind::kSegmentFree:
      return emit(raw.thread, SegmentFree{Address(raw.address), size, where});
    case RawKind::kReserved:
      return emit(raw.thread, Reserved{size, where});
    case RawKind::kEmptyCache:
      return emit(raw.thread, EmptyCache{where});
    case RawKind::kRetry:
      return emit(raw.thread, OutOfMemory{size, where, OutOfMemory::Kind::kRetry});
    case RawKind::kOutOfMemory:
      write_call(raw);
      return emit(raw.thread, OutOfMemory{size, where, OutOfMemory::Kind::kFailed});
    default:
      return;
  }
}

void Assembler::on_phase(const RawEvent& raw) {
  const Phase phase = static_cast<Phase>(raw.id);
  const bool begins = raw.kind == RawKind::kPhaseBegin;
  if (phase == Phase::kBackward) {
    if (begins) {
      ++backwards_;
    } else if (backwards_ > 0 && --backwards_ == 0) {
      modules_.backward_end();
      for (Thread& thread : threads_) thread.forward.clear();
    }
  }
  if (begins) {
    emit(raw.thread, PhaseBegin{phase});
  } else {
    emit(raw.thread, PhaseEnd{phase});
  }
}

Assembler::Device& Assembler::device(const RawEvent& raw) {
  if (raw.device >= devices_.size()) devices_.resize(raw.device + std::size_t{1});
  return devices_[raw.device];
}

void Assembler::alloc(const RawEvent& raw) {
  if (raw.address == 0) {
    thread(raw).call = {};
    return;
  }
  Device& where = device(raw);
  if (const LiveBlock* old = where.blocks.find(raw.address); old != nullptr) {
    // Its free happened out of sight.
    emit(raw.thread, Free{old->block});
    where.blocks.remove(*old);
    lost_.count(Loss::kUnseenFree);
  }
  LiveBlock block;
  block.address = raw.address;
  block.bytes = static_cast<std::int64_t>(raw.size);
  block.block = BlockId(++last_block_);
  block.made_by_model = modules_.running(raw.thread);
  where.blocks.add(block);
  where.estimated = raw.kind == RawKind::kAllocEstimate ? raw.address : 0;
  write_call(raw);
  emit(raw.thread,
       Alloc{block.block, Bytes(block.bytes), Bytes(static_cast<std::int64_t>(raw.extra)),
             Address(raw.address), StreamId(raw.id), DeviceId(raw.device)});
}

void Assembler::free(const RawEvent& raw) {
  Device& where = device(raw);
  const LiveBlock* block = where.blocks.find(raw.address);
  if (block == nullptr) return free_foreign(raw, where);
  emit(raw.thread, Free{block->block});
  where.freed = {raw.address, block->block};
  where.blocks.remove(*block);
}

void Assembler::free_waits(const RawEvent& raw) {
  Device& where = device(raw);
  if (where.freed.address != raw.address) return;  // a block from before the recording
  where.waiting.insert_or_assign(raw.address, where.freed.block);
  emit(raw.thread, StreamUse{where.freed.block, kUnknownStream});
}

void Assembler::free_completed(const RawEvent& raw) {
  Device& where = device(raw);
  const auto waiting = where.waiting.find(raw.address);
  if (waiting == where.waiting.end()) return;
  emit(raw.thread, FreeCompleted{waiting->second});
  where.waiting.erase(waiting);
}

// A block from before the recording. On the host such blocks were never counted.
void Assembler::free_foreign(const RawEvent& raw, Device& where) {
  if (raw.device == host_device_) return;
  const std::int64_t bytes = static_cast<std::int64_t>(raw.size);
  if (bytes == 0 || where.foreign_bytes < bytes) return lost_.count(Loss::kUnknownBlock);
  where.foreign_bytes -= bytes;
  emit(raw.thread, Resize{where.foreign, Bytes(where.foreign_bytes)});
}

void Assembler::foreign(const RawEvent& raw) {
  Device& where = device(raw);
  if (where.foreign_bytes > 0 || raw.size == 0) return;
  where.foreign = BlockId(++last_block_);
  where.foreign_bytes = static_cast<std::int64_t>(raw.size);
  const Bytes bytes(where.foreign_bytes);
  emit(raw.thread, Alloc{where.foreign, bytes, bytes, Address{}, StreamId{}, DeviceId(raw.device)});
  emit(raw.thread, Label{where.foreign, category::kOther, ModuleId{}, NameId{}});
}

void Assembler::resize(const RawEvent& raw) {
  Device& where = device(raw);
  LiveBlock* block = where.blocks.find(raw.address);
  if (where.estimated == raw.address) where.estimated = 0;
  if (block != nullptr) set_size(raw.thread, where, *block, static_cast<std::int64_t>(raw.size));
}

void Assembler::set_size(std::uint16_t thread, Device& where, LiveBlock& block,
                         std::int64_t bytes) {
  if (block.bytes == bytes) return;
  where.blocks.update(block, [bytes](LiveBlock& changed) { changed.bytes = bytes; });
  emit(thread, Resize{block.block, Bytes(bytes)});
}

// The allocator may have given an estimated block more than it had to: then its total says so.
void Assembler::total(const RawEvent& raw) {
  Device& where = device(raw);
  const std::int64_t missing = static_cast<std::int64_t>(raw.size) - where.total();
  LiveBlock* block = where.estimated == 0 ? nullptr : where.blocks.find(where.estimated);
  where.estimated = 0;
  if (missing == 0) return;
  if (block != nullptr && block->bytes + missing > 0) {
    set_size(raw.thread, where, *block, block->bytes + missing);
  } else {
    lost_.count(missing > 0 ? Loss::kUnseenThread : Loss::kUnseenFree);
  }
}

void Assembler::label(const RawEvent& raw) {
  LiveBlock* block = find(raw);
  if (block == nullptr) return;
  const CategoryId wanted(static_cast<CategoryId::rep>(raw.id));
  if (block->category == wanted && block->owner == raw.size) return;
  if (wanted == category::kInput && !may_be_input(*block)) return;
  block->category = wanted;
  block->owner = raw.size;
  emit(raw.thread, Label{block->block, wanted, ModuleId(static_cast<std::uint32_t>(raw.size >> 32)),
                         NameId(static_cast<std::uint32_t>(raw.size))});
}

void Assembler::sureness(const RawEvent& raw) {
  if (const LiveBlock* block = find(raw)) {
    emit(raw.thread, Sureness{block->block, static_cast<Certainty>(raw.id)});
  }
}

// What is passed to a model may also be a parameter, a gradient, or another model's output.
bool Assembler::may_be_input(const LiveBlock& block) noexcept {
  const bool unclaimed =
      block.category == category::kUnlabelled || block.category == category::kOther;
  return unclaimed && !block.made_by_model;
}

void Assembler::finish() {
  modules_.finish();
  for (std::size_t i = 0; i < static_cast<std::size_t>(Loss::kCount_); ++i) {
    const Loss loss = static_cast<Loss>(i);
    if (lost_.of(loss) == 0) continue;
    emit(0, Lost{writer_.name(Diagnostics::name(loss)), lost_.of(loss)});
  }
  lost_ = {};
}

}  // namespace peakline::capture
