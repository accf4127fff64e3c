// Bindings of vgpu/: `peakline._C.vgpu`.
#include <torch/csrc/Generator.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/utils/device_lazy_init.h>
#include <torch/csrc/utils/pybind.h>

#include <peakline/generated_kernel.h>
#include <peakline/units.h>

#include "bindings.h"
#include "capture/recorder.h"
#include "errors.h"
#include "python_calls.h"
#include "vgpu/alloc_log.h"
#include "vgpu/compiled_region.h"
#include "vgpu/copies.h"
#include "vgpu/foreign_errors.h"
#include "vgpu/generator.h"
#include "vgpu/high_water.h"
#include "vgpu/host_memory.h"
#include "vgpu/pinned.h"
#include "vgpu/registration.h"
#include "vgpu/session.h"
#include "vgpu/tensor.h"
#include "vgpu/values.h"

namespace peakline::bindings {
namespace {

using vgpu::Engine;
using vgpu::engine_or_throw;
using vgpu::ThisThread;

Engine& engine() { return engine_or_throw("torch.cuda"); }

int checked(int device) {
  if (device < 0) return ThisThread::device();
  if (device < engine().devices()) return device;
  throw_if_error(invalid_input("there is no cuda:" + std::to_string(device) +
                               ": the virtual machine has " + std::to_string(engine().devices()) +
                               " GPU(s)"));
  return device;
}

template <class T>
T option(const py::dict& options, const char* name, T otherwise) {
  if (!options.contains(name) || options[name].is_none()) return otherwise;
  return options[name].cast<T>();
}

vgpu::ValuePolicy policy_of(const py::dict& options, vgpu::ValuePolicy policy) {
  policy.number = option(options, "float", policy.number);
  policy.whole = option(options, "int", policy.whole);
  if (options.contains("bool")) policy.truth = options["bool"].cast<bool>();
  policy.nonzero = option(options, "nonzero", policy.nonzero);
  return policy;
}

std::optional<PlannerFiles> planner_of(const py::dict& options) {
  const auto files = option(options, "planner", py::dict());
  if (files.empty()) return std::nullopt;
  return PlannerFiles{files["program"].cast<std::string>(), files["cudnn"].cast<std::string>()};
}

void enter(const py::dict& options) {
  vgpu::EngineOptions engine;
  engine.memory.devices = option(options, "devices", 1);
  engine.memory.profile = value_or_throw(load_profile(option<std::string>(options, "gpu", "h200")));
  const TorchVersion torch =
      value_or_throw(parse_torch_version(option<std::string>(options, "torch", "2.13")));
  engine.memory.settings = option<std::string>(options, "conf", "");
  engine.memory.config = value_or_throw(AllocatorConfig::parse(engine.memory.settings, torch));
  const auto limit = option<std::int64_t>(options, "memory", 0);
  if (limit > 0) engine.memory.limit = Bytes(limit);
  engine.value_bytes = option(options, "value_bytes", engine.value_bytes);
  engine.policy = policy_of(option(options, "policy", py::dict()), engine.policy);
  engine.planner = planner_of(options);
  engine.clock = option(options, "clock", true);
  throw_if_error(vgpu::enter(engine));
  count_python_calls(engine.clock);
}

py::dict memory_stats(int device) {
  py::dict out;
  for (const auto& [name, value] : engine().memory().stats(checked(device))) {
    out[py::str(name)] = value;
  }
  return out;
}

const char* state_name(BlockView::State state) {
  switch (state) {
    case BlockView::State::kAllocated:
      return "active_allocated";
    case BlockView::State::kAwaitingFree:
      return "active_awaiting_free";
    default:
      return "inactive";
  }
}

py::dict to_dict(const SegmentView& segment, int device) {
  py::list blocks;
  for (const BlockView& block : segment.blocks) {
    blocks.append(
        py::dict(py::arg("address") = block.address.raw(), py::arg("size") = block.bytes.raw(),
                 py::arg("requested_size") = block.requested.raw(),
                 py::arg("state") = state_name(block.state), py::arg("frames") = py::list()));
  }
  return py::dict(py::arg("device") = device, py::arg("address") = segment.address.raw(),
                  py::arg("total_size") = segment.bytes.raw(),
                  py::arg("allocated_size") = segment.allocated.raw(),
                  py::arg("active_size") = segment.active.raw(),
                  py::arg("requested_size") = segment.requested.raw(),
                  py::arg("stream") = segment.stream.raw(),
                  py::arg("segment_type") = segment.is_large ? "large" : "small",
                  py::arg("segment_pool_id") = py::make_tuple(0, segment.pool.raw()),
                  py::arg("is_expandable") = segment.is_expandable, py::arg("frames") = py::list(),
                  py::arg("blocks") = blocks);
}

py::dict snapshot() {
  py::list traces;  // events are in peakline's own recording
  py::list segments;
  for (int device = 0; device < engine().devices(); ++device) {
    traces.append(py::list());
    for (const SegmentView& segment : engine().memory().segments(device)) {
      segments.append(to_dict(segment, device));
    }
  }
  const AllocatorConfig& config = engine().memory().config();
  py::dict settings(py::arg("PYTORCH_CUDA_ALLOC_CONF") = config.text,
                    py::arg("expandable_segments") = config.expandable_segments,
                    py::arg("garbage_collection_threshold") = config.garbage_collection_threshold);
  return py::dict(py::arg("segments") = segments, py::arg("device_traces") = traces,
                  py::arg("allocator_settings") = settings,
                  py::arg("external_annotations") = py::list());
}

py::dict properties(int device) {
  static_cast<void>(checked(device));
  const DeviceProfile& gpu = engine().profile();
  return py::dict(
      py::arg("name") = gpu.name, py::arg("major") = gpu.major, py::arg("minor") = gpu.minor,
      py::arg("total_memory") = gpu.total_memory.raw(),
      py::arg("multi_processor_count") = gpu.sm_count, py::arg("warp_size") = gpu.warp_size,
      py::arg("L2_cache_size") = gpu.l2_cache.raw(),
      py::arg("max_threads_per_multi_processor") = gpu.max_threads_per_sm,
      py::arg("max_threads_per_block") = gpu.max_threads_per_block,
      py::arg("regs_per_multiprocessor") = gpu.registers_per_sm,
      py::arg("shared_memory_per_block") = gpu.shared_memory_per_block.raw(),
      py::arg("shared_memory_per_block_optin") = gpu.shared_memory_per_block_opt_in.raw(),
      py::arg("shared_memory_per_multiprocessor") = gpu.shared_memory_per_sm.raw(),
      py::arg("is_integrated") = false, py::arg("is_multi_gpu_board") = false,
      py::arg("gcnArchName") = gpu.name, py::arg("context") = gpu.context_with_cudnn.raw());
}

py::tuple stream_key(std::int64_t stream, int device) {
  return py::make_tuple(stream, device, static_cast<int>(c10::kCUDA));
}

py::dict counters() {
  vgpu::Counters& counters = engine().counters();
  std::uint64_t unknown = 0;
  for (const auto& [name, count] : engine().unknown_values()) unknown += count;
  return py::dict(py::arg("ops") = counters.ops.load(), py::arg("hits") = counters.hits.load(),
                  py::arg("misses") = counters.misses.load(),
                  py::arg("values") = counters.values.load(), py::arg("unknown_values") = unknown);
}

const char* decided(vgpu::Decides decides) {
  switch (decides) {
    case vgpu::Decides::kBranch:
      return "branch";
    case vgpu::Decides::kSize:
      return "size";
    case vgpu::Decides::kNumbers:
      return "numbers";
    default:
      return "";
  }
}

// Python's object, let go of where Python may be touched.
class Listener {
 public:
  explicit Listener(py::function function)
      : function_(new py::function(std::move(function)), [](py::function* held) {
          const py::gil_scoped_acquire gil;
          delete held;
        }) {}
  void operator()(const std::string& what, vgpu::Decides decides) const {
    const py::gil_scoped_acquire gil;
    (*function_)(what, decided(decides));
  }
  void operator()(const at::Tensor& copy) const {
    const py::gil_scoped_acquire gil;
    (*function_)(copy);
  }

 private:
  std::shared_ptr<py::function> function_;
};

bool is_known(const at::Tensor& tensor) {
  const py::gil_scoped_release no_gil;
  return vgpu::known_values(tensor).has_value();
}

void bind_values(py::module_& m) {
  m.def("unknown_values", [] { return engine().unknown_values(); });
  // Called with what asked ("item") and what it may decide ("branch", "size", "numbers", "").
  m.def("on_unknown", [](const std::optional<py::function>& function) {
    engine().set_listener(function ? vgpu::AskedFn(Listener(*function)) : vgpu::AskedFn());
  });
  // Called with every copy on the host whose whole numbers, or bools, were made up.
  m.def("on_made_up_copy", [](const std::optional<py::function>& function) {
    using CopyFn = std::function<void(const at::Tensor&)>;
    vgpu::on_made_up_copy(function ? CopyFn(Listener(*function)) : CopyFn());
  });
  m.def("count_step", [] { engine().count_step(); });
  m.def("is_known", &is_known);
  m.def("is_picked", [](const at::Tensor& tensor) {
    const vgpu::StorageRecord* record = vgpu::record_of(tensor);
    return record != nullptr && (!record->value || record->value->picked());
  });
  m.def("assume", &vgpu::assume);
  m.def("assumption_used", [] { return engine().assumption_used(); });
}

void bind_memory(py::module_& m) {
  m.def("memory_stats", &memory_stats);
  m.def("reset_peak", [](int device) { engine().memory().reset_peak(checked(device)); });
  m.def("reset_accumulated",
        [](int device) { engine().memory().reset_accumulated(checked(device)); });
  m.def("empty_cache", [] { engine().memory().empty_cache(); });
  // (allocated, reserved): the most since the last call.
  m.def("take_high_water", [](int device, std::int64_t allocated, std::int64_t reserved) {
    return vgpu::take_high_water(checked(device), allocated, reserved);
  });
  m.def("clear_cublas_workspaces", [] { engine().clear_workspaces("cublas"); });
  m.def("set_memory_fraction", [](double fraction, int device) {
    engine().memory().set_fraction(checked(device), fraction);
  });
  m.def("get_memory_fraction",
        [](int device) { return engine().memory().fraction(checked(device)); });
  m.def("mem_get_info", [](int device) { return engine().memory().info(checked(device)); });
  m.def("configure", [](const std::string& settings) {
    const TorchVersion torch = engine().memory().config().torch;
    return engine().memory().configure(settings,
                                       value_or_throw(AllocatorConfig::parse(settings, torch)));
  });
  m.def("allocator_settings", [] { return engine().memory().settings(); });
  m.def("allocated_since_failure", [] { return engine().memory().allocated_since_failure(); });
  m.def("snapshot", &snapshot);
  m.def("begin_alloc_log", [](int device) { vgpu::begin_alloc_log(checked(device)); });
  m.def("end_alloc_log", [] {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> steps;
    for (const vgpu::AllocStep& step : vgpu::end_alloc_log()) {
      steps.emplace_back(step.address, step.bytes);
    }
    return steps;
  });
}

using Workspace = void (Engine::*)(std::optional<Bytes>);

void set_workspace(Workspace set, std::optional<std::int64_t> bytes) {
  (engine().*set)(bytes ? std::optional(Bytes(*bytes)) : std::nullopt);
}

// cuDNN, as far as convolutions needed it.
py::dict cudnn() {
  ConvPlanner* planner = engine().conv_planner();
  const PlannerStatus status = planner == nullptr ? PlannerStatus{} : planner->status();
  return py::dict(py::arg("needed") = engine().used_cudnn(),
                  py::arg("installed") = planner != nullptr, py::arg("version") = status.version,
                  py::arg("problem") = status.problem);
}

py::dict measured_versions() {
  const DeviceProfile& gpu = engine().profile();
  const TorchVersion& torch = engine().memory().config().torch;
  const std::string version = std::to_string(torch.major) + "." + std::to_string(torch.minor);
  return py::dict(py::arg("torch") = gpu.measured_versions.torch,
                  py::arg("cudnn") = gpu.measured_versions.cudnn,
                  py::arg("has_torch") = gpu.measured_with_torch(version));
}

// A kernel of Python's leaves its error with the interpreter, or pybind11 has taken it already.
bool forget_python_error(const std::exception& error) {
  const py::gil_scoped_acquire gil;
  if (const auto* taken = dynamic_cast<const py::error_already_set*>(&error)) {
    return taken->matches(PyExc_Exception);
  }
  if (PyErr_Occurred() == nullptr || PyErr_ExceptionMatches(PyExc_Exception) == 0) return false;
  PyErr_Clear();
  return true;
}

void bind_kernels(py::module_& m) {
  vgpu::g_forget_error.store(&forget_python_error);
  m.def("cublas_workspace", [] { return engine().blas_workspaces().cublas.raw(); });
  m.def("cublaslt_workspace", [] { return engine().blas_workspaces().cublaslt.raw(); });
  m.def("set_cublas_workspace", [](std::optional<std::int64_t> bytes) {
    set_workspace(&Engine::set_cublas_workspace, bytes);
  });
  m.def("set_cublaslt_workspace", [](std::optional<std::int64_t> bytes) {
    set_workspace(&Engine::set_cublaslt_workspace, bytes);
  });
  m.def("cudnn", &cudnn);
  m.def("measured_versions", &measured_versions);
  m.def("outputs_only", [] { return engine().outputs_only(); });
  m.def("count_results_alone", [](const std::string& op) {
    static_cast<void>(engine());
    vgpu::count_results_alone(op);
  });
  m.def("run_own_code", &vgpu::run_own_code);
  m.def(
      "enter_compiled_region",
      [](bool modelled) {
        vgpu::enter_compiled_region(modelled ? Certainty::kModelled : Certainty::kGuessed);
      },
      py::arg("modelled") = false);
  m.def("leave_compiled_region", &vgpu::leave_compiled_region);
}

void bind_devices(py::module_& m) {
  m.def("device_count", [] { return engine().devices(); });
  m.def("current_device", [] { return ThisThread::device(); });
  m.def("exchange_device", [](int device) { return ThisThread::exchange_device(checked(device)); });
  m.def("properties", &properties);
  m.def("default_generator", [](int device) { return vgpu::default_generator(checked(device)); });
}

py::dict to_dict(const Timing& timing) {
  return py::dict(
      py::arg("elapsed_ms") = timing.elapsed_ms, py::arg("host_ms") = timing.host_ms,
      py::arg("gpu_busy_ms") = timing.gpu_busy_ms, py::arg("network_ms") = timing.network_ms,
      py::arg("hidden_network_ms") = timing.hidden_network_ms,
      py::arg("compute_ms") = timing.compute_ms, py::arg("memory_ms") = timing.memory_ms,
      py::arg("latency_ms") = timing.latency_ms, py::arg("guessed_ms") = timing.guessed_ms,
      py::arg("flops") = timing.flops, py::arg("kernels") = timing.kernels,
      py::arg("ops") = timing.ops, py::arg("bound_by") = std::string(timing.bound_by()));
}

const char* engine_name(Clock::Engine kind) {
  switch (kind) {
    case Clock::Engine::kCopyIn:
      return "copy in";
    case Clock::Engine::kCopyOut:
      return "copy out";
    case Clock::Engine::kNetwork:
      return "network";
    default:
      return "kernel";
  }
}

// (device, stream, engine, what bounds it, start, end), in microseconds.
py::list spans() {
  py::list out;
  for (const Clock::Span& span : engine().clock().spans()) {
    out.append(py::make_tuple(span.stream.device, span.stream.id, engine_name(span.engine),
                              std::string(to_text(span.bound)), span.start_us, span.end_us));
  }
  return out;
}

// Times of a stretch: two readings and their difference.
void bind_clock(py::module_& m) {
  py::class_<Timing>(m, "Timing")
      .def("since", [](const Timing& later, const Timing& earlier) { return later - earlier; })
      .def("to_dict", [](const Timing& timing) { return to_dict(timing); });
  m.def("clock_on", [] { return engine().clock().on(); });
  m.def("timing", [] { return engine().clock().timing(); });
  m.def("join_collectives", [] {
    if (Engine* on = vgpu::current_engine()) on->clock().join(ThisThread::device());
  });
  m.def("set_gpus_per_node", [](int gpus) { engine().clock().set_per_node(gpus); });
  m.def("clock_capture", [](std::uint64_t graph, int device, std::int64_t stream) {
    engine().clock().capture(graph, checked(device), stream);
  });
  m.def("clock_end_capture", [](std::uint64_t graph) { engine().clock().end_capture(graph); });
  m.def("clock_replay",
        [](std::uint64_t graph, int device) { engine().clock().replay(graph, checked(device)); });
  // A graph may outlive its GPU.
  m.def("clock_forget", [](std::uint64_t graph) {
    if (Engine* on = vgpu::current_engine()) on->clock().forget_graph(graph);
  });
  // A kernel that a compiler or the program wrote starts, and moves so many bytes.
  m.def("clock_kernel", [](double bytes) {
    if (!engine().clock().on()) return;
    engine().clock().op(ThisThread::device(), generated_kernel_time(bytes, engine().profile()));
  });
  m.def("keep_spans", [](std::size_t most) { engine().clock().keep_spans(most); });
  m.def("spans", &spans);
}

void bind_streams(py::module_& m) {
  m.def("current_stream", [](int device) {
    const int index = checked(device);
    return stream_key(ThisThread::stream(index), index);
  });
  m.def("default_stream", [](int device) { return stream_key(0, checked(device)); });
  m.def("new_stream", [](int device, int priority) {
    const int index = checked(device);
    return stream_key(engine().new_stream(index, priority), index);
  });
  m.def("set_stream", [](std::int64_t stream, int device) {
    ThisThread::exchange_stream(checked(device), stream);
  });
  // When an event that is recorded there now happens, in microseconds.
  m.def("event_us", [](std::int64_t stream, int device) {
    return engine().clock().record(checked(device), stream);
  });
  m.def("synchronize", [](int device) {
    engine().clock().synchronize_device(checked(device));
    engine().memory().synchronize(checked(device));
  });
}

// What a host tensor's values are, made up where they are unknown, as a real tensor.
at::Tensor host_values(const at::Tensor& tensor, const char* what) {
  const py::gil_scoped_release no_gil;
  return vgpu::answered_values(engine(), tensor, what, vgpu::Decides::kNumbers);
}

void bind_tensors(py::module_& m) {
  m.def("is_virtual", [](const at::Tensor& tensor) { return vgpu::is_virtual(tensor); });
  m.def("resize_storage", [](const at::Storage& storage, std::uint64_t bytes) {
    vgpu::resize_storage(engine(), *storage.unsafeGetStorageImpl(), bytes);
  });
  m.def("set_virtual_host", &vgpu::set_virtual_host);
  m.def("is_virtual_host", &vgpu::is_virtual_host);
  m.def("pinned_peak", &vgpu::pinned_peak);
  m.def("host_values", &host_values);
  // Whether a storage was made on a virtual GPU that is gone: another one may have its address by now.
  m.def("is_past_storage", [](const at::Storage& storage) {
    const vgpu::StorageRecord* record = vgpu::record_of(*storage.unsafeGetStorageImpl());
    const vgpu::Engine* now = vgpu::current_engine();
    return record != nullptr && vgpu::owns_memory(*storage.unsafeGetStorageImpl()) &&
           (now == nullptr || record->engine != now->serial());
  });
  m.def("is_virtual_storage", [](const at::Storage& storage) {
    return vgpu::record_of(*storage.unsafeGetStorageImpl()) != nullptr;
  });
  m.def("count_on_host",
        [](const at::Storage& storage) { vgpu::count_on_host(*storage.unsafeGetStorageImpl()); });
}

}  // namespace

void bind_vgpu(py::module_& parent) {
  py::module_ m = parent.def_submodule("vgpu", "The virtual GPU's engine.");
  m.def("enter", &enter);
  m.def("leave", [] {
    const bool was_on = vgpu::current_engine() != nullptr;
    count_python_calls(false);
    vgpu::leave();
    // Python's torch.cuda initialises itself again where a real GPU is used next.
    if (was_on) torch::utils::set_requires_device_init(at::kCUDA, true);
  });
  m.def("active", [] { return vgpu::current_engine() != nullptr; });
  // What is recorded now is written by the recorder that is current at this call.
  m.def("record", [] { engine().memory().record_into(capture::current_recorder()); });
  m.def("stop_recording", [] {
    if (Engine* on = vgpu::current_engine()) on->memory().record_into(nullptr);
  });
  m.def("counters", &counters);
  bind_values(m);
  bind_memory(m);
  bind_kernels(m);
  bind_devices(m);
  bind_streams(m);
  bind_clock(m);
  bind_tensors(m);
  bind_vgpu_pools(m);
}

}  // namespace peakline::bindings
