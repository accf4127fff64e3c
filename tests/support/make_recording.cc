// Writes a recording without any run behind it: `make_recording NAME FILE`, for golden tests and
// scale.
//   training          two small layers, three steps, every category
//   grown             the same with larger activations
//   odd-names         names that try to break a terminal, a table or a file format
//   scripts           names that are markup
//   two-devices       a GPU and the host
//   impossible        events that cannot be true
//   settings          an allocator with settings and a limit, which had to try again
//   stacks            call stacks, also of backward, regions, a line that keeps more with every step
//   stacks-grown      the same with a line that holds more, further down in its file
//   out-of-memory     call stacks, and an allocation that fails
//   empty             nothing at all
//   synthetic:EVENTS  a transformer's training of about that many events; synthetic-stacks:EVENTS: with
//                     call stacks
//   live:BLOCKS       so many blocks alive at once
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "synthetic_run.h"
#include "trace_builder.h"

namespace peakline::testing {
namespace {

void add_parameters(TraceBuilder& trace) {
  trace.alloc("embed.w", 24_MiB).label("embed.w", category::kParameter, "Net.embed", "weight");
  for (const char* layer : {"Net.layers.0", "Net.layers.1"}) {
    for (const char* part : {"attn", "mlp"}) {
      const std::string path = std::string(layer) + "." + part;
      trace.alloc(path + ".w", 8_MiB)
          .label(path + ".w", category::kParameter, path, "weight")
          .alloc(path + ".b", 4_KiB)
          .label(path + ".b", category::kParameter, path, "bias");
    }
  }
}

void forward(TraceBuilder& trace, Bytes gelu) {
  trace.alloc("batch", 1_MiB).label("batch", category::kInput);
  trace.enter("Net").enter("Net.embed").op("aten::embedding").alloc("x", 16_MiB).op_end();
  trace.leave("Net.embed");
  for (const char* layer : {"Net.layers.0", "Net.layers.1"}) {
    trace.enter(layer);
    for (const char* part : {"attn", "mlp"}) {
      const std::string path = std::string(layer) + "." + part;
      trace.enter(path).op("aten::mm").alloc("scratch", 32_MiB).alloc(path + ".out", 48_MiB);
      trace.free("scratch").op_end().op("aten::gelu").alloc(path + ".gelu", gelu).op_end();
      trace.op("aten::mul").alloc("tmp", 8_MiB).op_end().free("tmp").leave(path);
    }
    trace.leave(layer);
  }
  trace.leave("Net");
}

void backward(TraceBuilder& trace) {
  trace.phase_begin(Phase::kBackward).thread("autograd");
  for (const char* layer : {"Net.layers.1", "Net.layers.0"}) {
    for (const char* part : {"mlp", "attn"}) {
      const std::string path = std::string(layer) + "." + part;
      trace.backward(path).op("aten::mm").alloc(path + ".g", 8_MiB).op_end();
      trace.label(path + ".g", category::kGradient, path, "weight");
      trace.free(path + ".gelu").free(path + ".out").backward_end(path);
    }
  }
  trace.free("x").thread("main").phase_end(Phase::kBackward);
}

void optimizer(TraceBuilder& trace, bool first) {
  trace.phase_begin(Phase::kOptimizer).op("aten::_foreach_add_");
  for (const char* layer : {"Net.layers.0", "Net.layers.1"}) {
    for (const char* part : {"attn", "mlp"}) {
      const std::string path = std::string(layer) + "." + part;
      if (first) {
        trace.alloc(path + ".state", 16_MiB).label(path + ".state", category::kOptstate, path);
      }
    }
  }
  trace.op_end().phase_end(Phase::kOptimizer).step();
  for (const char* layer : {"Net.layers.0", "Net.layers.1"}) {
    for (const char* part : {"attn", "mlp"}) trace.free(std::string(layer) + "." + part + ".g");
  }
  trace.free("batch");
}

TraceBuilder training(Bytes gelu = 16_MiB) {
  TraceBuilder trace;
  trace.info("torch", "2.13.0+cu130").info("memory_limit.cuda:0", "8589934592");
  trace.device("cuda:0", 24_GiB, "NVIDIA L4").segment_alloc(0x7000'0000, 512_MiB);
  add_parameters(trace);
  for (int step = 0; step < 3; ++step) {
    forward(trace, gelu);
    if (step == 1) trace.segment_alloc(0x9000'0000, 64_MiB);
    backward(trace);
    optimizer(trace, step == 0);
  }
  return trace;
}

TraceBuilder odd_names() {
  TraceBuilder trace;
  trace.device("cuda:0").info("torch", "2.13.0\x1b[31m");
  trace.enter("\x1b[2J\x07Net").enter("Ünïcødé.层.very_long_" + std::string(120, 'x') + ".end");
  trace.op("aten::<script>alert(1)</script>,\"quoted\"").alloc("a", 3_MiB).op_end();
  return trace;
}

TraceBuilder scripts() {
  TraceBuilder trace;
  trace.enter("<script>alert(1)</script>").op("<img src=x onerror=alert(2)>").alloc("a", 3_MiB);
  trace.op_end().leave("<script>alert(1)</script>").marker("</script><script>alert(3)</script>");
  trace.info("command", "</script><script>alert(4)</script>");
  return trace;
}

TraceBuilder two_devices() {
  TraceBuilder trace;
  trace.device("cpu").alloc("batch", 5_MiB).device("cuda:0").alloc("w", 2_MiB);
  trace.alloc("x", 1_MiB).free("x").device("cpu").free("batch");
  return trace;
}

TraceBuilder settings() {
  TraceBuilder trace;
  trace.info("torch", "2.13.0").info("allocator_limit.cuda:0", "125829120");
  trace.info("allocator_conf", "max_split_size_mb:64");
  trace.device("cuda:0", 24_GiB, "NVIDIA L4").segment_alloc(0x7000'0000, 70_MiB);
  trace.alloc("a", 70_MiB).free("a").segment_free(0x7000'0000, 70_MiB);
  trace.segment_alloc(0x7000'0000, 80_MiB).oom(80_MiB, OutOfMemory::Kind::kRetry);
  return trace.alloc("b", 80_MiB).oom(100_MiB);
}

// Facts that the report draws; `whole` or not of the form that it knows.
TraceBuilder pictures(bool whole) {
  TraceBuilder trace = training();
  const char* spans = whole ? "[[0,40,0],[50,30,1]]" : "[[0,\"<b>\",0]]";
  trace.info("streams", std::string(R"({"us":100,"kinds":["compute","memory"],"streams":[)") +
                            R"({"device":0,"name":"default stream","spans":)" + spans + "}]}");
  trace.info(
      "tradeoffs",
      whole ? R"({"Net":{"memory":1048576,"ms":2.5,"points":[[0.1,0],[1,1]],"pieces":[[0,1,0]]}})"
            : R"({"Net":{"memory":"<b>"}})");
  return trace;
}

// Three lines of a model, one of them in backward, too, an evaluation, and a list that keeps losses.
TraceBuilder stacks(Bytes hidden, int first_line) {
  const std::string fc1 = "/src/net/model.py:" + std::to_string(first_line) + " Net.forward";
  const std::string fc2 = "/src/net/model.py:" + std::to_string(first_line + 1) + " Net.forward";
  const std::string call = "/src/train.py:30 main > ";
  const std::string library = " > lib:/lib/torch/nn/linear.py:125 Linear.forward";
  TraceBuilder trace;
  trace.info("torch", "2.13.0").device("cuda:0", 24_GiB, "NVIDIA L4");
  trace.at("/src/train.py:10 main > /src/net/model.py:5 Net.__init__").alloc("w", 8_MiB);
  trace.label("w", category::kParameter, "Net", "weight");
  for (int step = 0; step < 4; ++step) {
    const std::string loss = "loss" + std::to_string(step);
    trace.region("train").enter("Net");
    trace.op("aten::mm").at(call + fc1 + library).alloc("h", hidden).op_end();
    trace.op("aten::mm").at(call + fc2 + library).alloc("y", 4_MiB).op_end().leave("Net");
    trace.op("aten::mean").at("/src/train.py:31 main").alloc(loss, 1_MiB).op_end();
    trace.phase_begin(Phase::kBackward).thread("autograd").backward("Net");
    trace.op("aten::mm").at("/src/train.py:32 main", call + fc1 + library).alloc("g", 8_MiB);
    trace.op_end().label("g", category::kGradient, "Net", "weight").backward_end("Net");
    trace.free("h").free("y").thread("main").phase_end(Phase::kBackward).region_end();
    trace.phase_begin(Phase::kOptimizer).phase_end(Phase::kOptimizer).step().free("g");
    if (step == 1) {
      trace.region("eval").region("metrics").at("/src/train.py:50 evaluate").alloc("m", 2_MiB);
      trace.region_end().region_end().free("m");
    }
  }
  return trace;
}

TraceBuilder out_of_memory() {
  TraceBuilder trace = stacks(16_MiB, 21);
  trace.segment_alloc(0x7000'0000, 40_MiB).enter("Net").op("aten::mm");
  return trace.at("/src/train.py:30 main > /src/net/model.py:21 Net.forward").oom(64_MiB);
}

TraceBuilder impossible() {
  TraceBuilder trace;
  trace.alloc("a", 4_MiB).free("ghost").free("a").free("a").op_end().leave("Net").enter("Net");
  trace.alloc("negative", Bytes(-1)).segment_free(1, 1_MiB).lost(Loss::kUnseenFree, 7);
  return trace;
}

Status write_synthetic(const std::string& path, std::uint64_t events, bool stacks) {
  Result<std::unique_ptr<Sink>> sink = open_file_sink(path);
  if (!sink.ok()) return sink.status();
  TraceWriter writer(std::move(*sink));
  SyntheticOptions options;
  options.stacks = stacks;
  SyntheticRun run(options);
  run.define_words(writer);
  while (writer.event_count() < events && writer.status().ok()) {
    for (const Event& event : run.next_step()) writer.write(event);
  }
  return writer.close();
}

Status write_live(const std::string& path, std::uint64_t blocks) {
  constexpr std::uint64_t kSize = 512;
  Result<std::unique_ptr<Sink>> sink = open_file_sink(path);
  if (!sink.ok()) return sink.status();
  TraceWriter writer(std::move(*sink));
  const DeviceId gpu = writer.device({"cuda:0", "NVIDIA H200", Bytes(std::int64_t{139} << 30)});
  const OpId op = writer.op("aten::empty");
  writer.write({TimeNs(0), ThreadId{}, OpBegin{op}});
  for (std::uint64_t i = 0; i < blocks; ++i) {
    writer.write({TimeNs(static_cast<std::int64_t>(i)), ThreadId{},
                  Alloc{BlockId(i + 1), Bytes(kSize), Bytes(kSize), Address((i + 1) * kSize),
                        StreamId{}, gpu}});
  }
  writer.write({TimeNs(static_cast<std::int64_t>(blocks)), ThreadId{}, OpEnd{}});
  writer.write({TimeNs(static_cast<std::int64_t>(blocks)), ThreadId{}, StepEnd{}});
  return writer.close();
}

Status make(const std::string& name, const std::string& path) {
  constexpr const char* kSynthetic = "synthetic:";
  constexpr const char* kWithStacks = "synthetic-stacks:";
  constexpr const char* kLive = "live:";
  if (name == "training") return training().write(path);
  if (name == "grown") return training(24_MiB).write(path);
  if (name == "odd-names") return odd_names().write(path);
  if (name == "scripts") return scripts().write(path);
  if (name == "two-devices") return two_devices().write(path);
  if (name == "pictures") return pictures(true).write(path);
  if (name == "odd-pictures") return pictures(false).write(path);
  if (name == "impossible") return impossible().write(path);
  if (name == "settings") return settings().write(path);
  if (name == "stacks") return stacks(16_MiB, 21).write(path);
  if (name == "stacks-grown") return stacks(24_MiB, 27).write(path);
  if (name == "out-of-memory") return out_of_memory().write(path);
  if (name == "empty") return TraceBuilder{}.write(path);
  if (name.starts_with(kSynthetic)) {
    return write_synthetic(path, std::strtoull(name.c_str() + std::strlen(kSynthetic), nullptr, 10),
                           false);
  }
  if (name.starts_with(kWithStacks)) {
    return write_synthetic(
        path, std::strtoull(name.c_str() + std::strlen(kWithStacks), nullptr, 10), true);
  }
  if (name.starts_with(kLive)) {
    return write_live(path, std::strtoull(name.c_str() + std::strlen(kLive), nullptr, 10));
  }
  return invalid_input("no recording is called " + name);
}

}  // namespace
}  // namespace peakline::testing

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: make_recording NAME FILE\n");
    return 2;
  }
  const peakline::Status status = peakline::testing::make(argv[1], argv[2]);
  if (!status.ok()) std::fprintf(stderr, "make_recording: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
