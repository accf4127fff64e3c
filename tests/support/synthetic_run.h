// A training run that never happened, step after step, for benchmarks and for tests of scale.
//
//   SyntheticRun run;
//   run.define_words(writer);
//   while (writer.event_count() < 100'000'000) {
//     for (const Event& event : run.next_step()) writer.write(event);
//   }
//
// Shaped like the training of a transformer: modules inside modules, each op with its allocations,
// activations freed by backward (on a second thread) in reverse, gradients labelled and freed,
// bucketed collectives, an optimizer that makes its state in the first step. Sequence lengths
// change from step to step, clocks jitter, and addresses are reused as a caching allocator does,
// so that a compressor gets no more repetition than a real run would give it. Every block is freed
// or lives to the end, every begin has its end.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <peakline/category.h>
#include <peakline/dictionary.h>
#include <peakline/event.h>
#include <peakline/trace.h>

namespace peakline::testing {

struct SyntheticOptions {
  std::uint32_t layers = 24;
  std::int64_t hidden = 1024;
  std::int64_t batch = 8;
  std::int64_t length = 512;  // the median sequence length
  bool vary_lengths = true;   // false: every step has the same sizes
  bool stacks = false;        // every allocation with its lines
  std::uint64_t seed = 1;
};

// Random numbers that are the same everywhere, which std's distributions are not.
class SyntheticRandom {
 public:
  explicit SyntheticRandom(std::uint64_t seed) : state_(seed) {
    for (double& value : log_normal_) {
      double sum = -6;  // twelve uniform numbers make a normal one
      for (int i = 0; i < 12; ++i) sum += static_cast<double>(next() >> 11) * 0x1p-53;
      value = std::exp(0.5 * sum);
    }
  }
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // Around `median`, with a long tail upwards.
  std::int64_t around(std::int64_t median) {
    const std::uint64_t bits = next();
    const double spread = log_normal_[bits % log_normal_.size()];
    const double jitter = 1 + 0x1p-12 * static_cast<double>((bits >> 32) & 0xff);
    return static_cast<std::int64_t>(static_cast<double>(median) * spread * jitter);
  }

 private:
  std::uint64_t state_;
  std::array<double, 1024> log_normal_{};
};

class SyntheticRun {
 public:
  explicit SyntheticRun(SyntheticOptions options = {}) : options_(options), random_(options.seed) {
    main_ = words_.intern_thread("main");
    autograd_ = words_.intern_thread("autograd");
    device_ = words_.intern_device({"cuda:0", "Synthetic", Bytes(std::int64_t{1} << 40)});
    all_reduce_ = words_.intern_name("all_reduce");
    group_ = words_.intern_name("dp");
    add_op_ = words_.intern_op("aten::add_");
    optimizer_op_ = words_.intern_op("aten::_foreach_addcdiv_");
    if (options_.stacks) build_callers();
    build_model();
  }

  [[nodiscard]] const Dictionary& dictionary() const { return words_; }

  // Gives every word the id that the events use; `writer` has seen no words yet.
  void define_words(TraceWriter& writer) const {
    for (std::uint32_t i = 1; i < words_.name_count(); ++i) writer.name(words_.name(NameId(i)));
    for (std::uint32_t i = 1; i < words_.op_count(); ++i) writer.op(words_.op(OpId(i)));
    for (std::uint32_t i = 1; i < words_.module_count(); ++i) {
      const ModuleInfo& module = words_.module(ModuleId(i));
      writer.module(module.path, module.type, module.parent);
    }
    writer.device(words_.device(device_));
    writer.thread("main");
    writer.thread("autograd");
    for (std::uint32_t i = 1; i < words_.line_count(); ++i) writer.line(words_.line(LineId(i)));
    for (std::uint32_t i = 1; i < words_.stack_count(); ++i) {
      const StackInfo& stack = words_.stack(StackId(i));
      writer.stack(stack.caller, stack.line);
    }
  }

  // The events of the next step, valid until the next call. The first one also builds the model.
  const std::vector<Event>& next_step() {
    events_.clear();
    if (steps_++ == 0) make_parameters();
    const std::int64_t length =
        options_.vary_lengths ? (random_.around(options_.length) + 7) / 8 * 8 : options_.length;
    tokens_ = options_.batch * std::max<std::int64_t>(length, 8);
    forward();
    backward();
    optimize();
    emit(StepEnd{});
    return events_;
  }

 private:
  struct Block {
    BlockId id;
    std::int64_t bytes = 0;
    std::uint64_t address = 0;
  };
  struct Op {
    OpId forward;
    OpId backward;
    std::int64_t saved;  // elements per token that backward needs
    std::int64_t temp;   // elements per token that die at once
    StackId stack = {};
  };
  struct Part {
    ModuleId module;
    std::vector<Op> ops;
    std::vector<NameId> parameters;
    std::int64_t parameter_bytes = 0;
    std::vector<Block> saved;
    std::vector<Block> gradients;
    bool opens_layer = false;  // the layer's own module is entered before this part
    bool closes_layer = false;
    ModuleId layer;
  };

  void build_model() {
    root_ = words_.intern_module("GPT", "GPT", ModuleId{});
    const std::int64_t h = options_.hidden;
    for (std::uint32_t i = 0; i < options_.layers; ++i) {
      const std::string path = "GPT.h." + std::to_string(i);
      const ModuleId layer = words_.intern_module(path, "Block", root_);
      add_part(layer, path + ".ln_1", "LayerNorm", 2 * h, {op("native_layer_norm", h, 0)});
      parts_.back().opens_layer = true;
      add_part(layer, path + ".attn", "Attention", 4 * h * h,
               {op("addmm", 3 * h, 0), op("split", 0, 0), op("clone", 3 * h, h),
                op("_scaled_dot_product_flash_attention", h + 1, h), op("transpose", 0, 0),
                op("addmm", h, 0), op("native_dropout", h / 4, h), op("add", h, 0)});
      add_part(layer, path + ".ln_2", "LayerNorm", 2 * h, {op("native_layer_norm", h, 0)});
      add_part(layer, path + ".mlp", "MLP", 8 * h * h,
               {op("addmm", 4 * h, 0), op("gelu", 4 * h, 4 * h), op("addmm", h, 0),
                op("native_dropout", h / 4, h), op("add", h, 0)});
      parts_.back().closes_layer = true;
    }
  }

  StackId call(StackId caller, std::string_view file, std::uint32_t line,
               std::string_view function) {
    const CodeLine code{words_.intern_name(file), words_.intern_name(function), line, false,
                        "x = self.part(x, " + std::to_string(line) + ")"};
    return words_.intern_stack(caller, words_.intern_line(code));
  }
  void build_callers() {
    const StackId step = call(call({}, "/src/train.py", 12, "main"), "/src/train.py", 40, "step");
    in_block_ = call(call(step, "/src/gpt/model.py", 200, "GPT.forward"), "/src/gpt/model.py", 150,
                     "Block.forward");
    backward_stack_ = call(call({}, "/src/train.py", 12, "main"), "/src/train.py", 41, "step");
    optimizer_stack_ = call(call({}, "/src/train.py", 12, "main"), "/src/train.py", 42, "step");
  }

  Op op(std::string_view name, std::int64_t saved, std::int64_t temp) {
    return {words_.intern_op("aten::" + std::string(name)),
            words_.intern_op("aten::" + std::string(name) + "_backward"), saved, temp};
  }

  void add_part(ModuleId layer, const std::string& path, std::string_view type,
                std::int64_t parameters, std::vector<Op> ops) {
    Part part;
    part.layer = layer;
    part.module = words_.intern_module(path, type, layer);
    part.ops = std::move(ops);
    for (std::uint32_t i = 0; options_.stacks && i < part.ops.size(); ++i) {
      const auto line = static_cast<std::uint32_t>(20 * type.size()) + i;
      part.ops[i].stack =
          call(in_block_, "/src/gpt/model.py", line, std::string(type) + ".forward");
    }
    part.parameter_bytes = 2 * parameters;
    part.parameters = {words_.intern_name(path + ".weight"), words_.intern_name(path + ".bias")};
    parts_.push_back(std::move(part));
  }

  // The clock moves with every event: a little, or (before ops) by the launch of a kernel.
  void emit(const EventBody& body, std::int64_t wait = 150) {
    time_ += random_.around(wait);
    events_.push_back({TimeNs(time_), thread_, body});
  }

  // As a caching allocator: the block of that size that was freed last, else fresh memory.
  Block allocate(std::int64_t bytes) {
    const std::int64_t rounded = (bytes + 511) / 512 * 512;
    Block block{BlockId(next_block_++), rounded, 0};
    std::vector<std::uint64_t>& cached = cache_[rounded];
    if (cached.empty()) {
      block.address = next_address_;
      next_address_ += static_cast<std::uint64_t>(rounded);
    } else {
      block.address = cached.back();
      cached.pop_back();
    }
    if (call_.stack != StackId{}) emit(call_, 0);
    emit(Alloc{block.id, Bytes(rounded), Bytes(bytes), Address(block.address), StreamId(0),
               device_});
    return block;
  }
  void free(const Block& block) {
    emit(Free{block.id}, 80);
    cache_[block.bytes].push_back(block.address);
  }

  void make_parameters() {
    for (Part& part : parts_) {
      for (const NameId name : part.parameters) {
        const Block block = allocate(part.parameter_bytes / 2);
        emit(Label{block.id, category::kParameter, part.module, name});
      }
    }
  }

  void forward() {
    thread_ = main_;
    emit(PhaseBegin{Phase::kForward});
    emit(ModuleEnter{root_, ModulePass::kForward});
    for (Part& part : parts_) {
      if (part.opens_layer) emit(ModuleEnter{part.layer, ModulePass::kForward});
      emit(ModuleEnter{part.module, ModulePass::kForward}, 1500);
      for (const Op& op : part.ops) forward_op(part, op);
      emit(ModuleLeave{part.module, ModulePass::kForward}, 800);
      if (part.closes_layer) emit(ModuleLeave{part.layer, ModulePass::kForward});
    }
    emit(ModuleLeave{root_, ModulePass::kForward});
    emit(PhaseEnd{Phase::kForward});
  }

  void forward_op(Part& part, const Op& op) {
    emit(OpBegin{op.forward}, 4000);
    call_ = {op.stack, StackId{}};
    if (op.saved > 0) part.saved.push_back(allocate(2 * op.saved * tokens_));
    if (op.temp > 0) {
      const Block temp = allocate(2 * op.temp * tokens_);
      emit(OpEnd{}, 2500);
      free(temp);
    } else {
      emit(OpEnd{}, 2500);
    }
  }

  void backward() {
    emit(PhaseBegin{Phase::kBackward});
    thread_ = autograd_;
    Block flowing = allocate(2 * options_.hidden * tokens_);
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
      if (part->closes_layer) emit(ModuleEnter{part->layer, ModulePass::kBackward});
      emit(ModuleEnter{part->module, ModulePass::kBackward}, 1500);
      for (auto op = part->ops.rbegin(); op != part->ops.rend(); ++op) {
        backward_op(*part, *op, flowing);
      }
      make_gradients(*part);
      emit(ModuleLeave{part->module, ModulePass::kBackward}, 800);
      if (part->opens_layer) finish_layer(*part);
    }
    free(flowing);
    thread_ = main_;
    emit(PhaseEnd{Phase::kBackward});
  }

  void backward_op(Part& part, const Op& op, Block& flowing) {
    emit(OpBegin{op.backward}, 4000);
    call_ = {backward_stack_, op.stack};
    const Block next = allocate(2 * std::max<std::int64_t>(op.saved, 1) * tokens_);
    if (op.temp > 0) free(allocate(2 * op.temp * tokens_));
    emit(OpEnd{}, 2500);
    free(std::exchange(flowing, next));
    if (op.saved > 0) {
      free(part.saved.back());
      part.saved.pop_back();
    }
  }

  void make_gradients(Part& part) {
    for (const NameId name : part.parameters) {
      const Block gradient = allocate(part.parameter_bytes / 2);
      emit(Label{gradient.id, category::kGradient, part.module, name});
      part.gradients.push_back(gradient);
    }
  }

  // Now and then the main thread is seen in between, as hooks and other devices make it.
  void finish_layer(const Part& part) {
    emit(ModuleLeave{part.layer, ModulePass::kBackward});
    thread_ = main_;
    emit(Collective{all_reduce_, group_, Bytes(part.parameter_bytes)});
    thread_ = autograd_;
  }

  void optimize() {
    emit(PhaseBegin{Phase::kOptimizer});
    call_ = {optimizer_stack_, StackId{}};
    for (Part& part : parts_) {
      if (steps_ == 1) make_state(part);
      emit(OpBegin{optimizer_op_}, 2000);
      const Block temp = allocate(part.parameter_bytes);
      emit(OpEnd{}, 2500);
      free(temp);
    }
    emit(PhaseEnd{Phase::kOptimizer});
    for (Part& part : parts_) {
      for (const Block& gradient : part.gradients) free(gradient);
      part.gradients.clear();
    }
  }

  void make_state(const Part& part) {
    for (const NameId name : part.parameters) {
      for (int moment = 0; moment < 2; ++moment) {
        emit(OpBegin{add_op_}, 2000);
        const Block state = allocate(part.parameter_bytes);
        emit(OpEnd{});
        emit(Label{state.id, category::kOptstate, part.module, name});
      }
    }
  }

  SyntheticOptions options_;
  SyntheticRandom random_;
  Dictionary words_;
  ThreadId main_, autograd_, thread_;
  DeviceId device_;
  NameId all_reduce_, group_;
  OpId add_op_, optimizer_op_;
  ModuleId root_;
  StackId in_block_, backward_stack_, optimizer_stack_;
  CallStack call_;
  std::vector<Part> parts_;
  std::vector<Event> events_;
  std::unordered_map<std::int64_t, std::vector<std::uint64_t>> cache_;  // free addresses by size
  std::uint64_t next_block_ = 1;
  std::uint64_t next_address_ = 0x7f0000000000;
  std::int64_t time_ = 0;
  std::int64_t tokens_ = 0;
  std::uint64_t steps_ = 0;
};

}  // namespace peakline::testing
