// What an operator's CUDA implementation allocates: its outputs, the scratch memory of kernels and
// libraries, and in which order. Asked once per operator and shapes; the answer is a small program
// that the caller runs against its allocator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <peakline/certainty.h>
#include <peakline/device_profile.h>
#include <peakline/dtype.h>
#include <peakline/units.h>

namespace peakline {

// A tensor as an operator sees it. Sizes and strides count elements.
struct TensorMeta {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t storage_offset = 0;
  DType dtype = DType::kFloat32;
  bool defined = true;  // false: an optional tensor that was not given
  bool on_gpu = true;
  bool requires_grad = false;

  [[nodiscard]] std::int64_t numel() const noexcept;
  [[nodiscard]] Bytes bytes() const noexcept;  // of a dense tensor with these sizes
  [[nodiscard]] bool contiguous() const noexcept;
  // Dense in channels_last order (4 or 5 dimensions), and not also contiguous in the usual sense
  // unless its sizes make the two the same.
  [[nodiscard]] bool channels_last() const noexcept;
};

// An argument. None is std::monostate; dtypes, layouts and memory formats are ints, as in IValue.
using Argument =
    std::variant<std::monostate, TensorMeta, std::vector<TensorMeta>, std::int64_t, double, bool,
                 std::vector<std::int64_t>, std::vector<double>, std::vector<bool>, std::string>;

// A convolution as torch hands it to whoever computes it. Which that is, and in which layout, is
// torch's own choice: it is asked once, by whoever makes the call.
struct Convolution {
  enum class Backend : std::uint8_t {
    kCudnn,
    kDepthwise,  // torch's own kernels: no memory beside the results
    kColumns,    // torch's own too: one picture at a time is unfolded, and multiplied
  };
  Backend backend = Backend::kCudnn;
  bool channels_last = false;  // the layout that the backend works in
  bool transposed = false;
  bool benchmark = false;
  bool deterministic = false;
  bool allow_tf32 = true;
  std::int64_t groups = 1;
  // One number for each dimension of the pictures.
  std::vector<std::int64_t> stride;
  std::vector<std::int64_t> padding;
  std::vector<std::int64_t> dilation;
};

// One call of an operator below autograd.
struct OpCall {
  std::string_view name;            // "aten::addmm", without the overload
  std::string_view overload;        // "out", "dim_IntList", ... ; empty for the default
  std::vector<Argument> arguments;  // in the schema's order, defaults filled in
  struct Output {
    TensorMeta meta;
    bool fresh = true;  // false: a view, an argument, or undefined: nothing to allocate
  };
  std::vector<Output> outputs;             // tensors in the order of the returns, lists flattened
  std::optional<Convolution> convolution;  // of ops that are one
  // torch declares the op as one loop over elements, or as a view: there is no scratch memory.
  bool elementwise = false;
  bool view = false;  // an output is a view of an argument, and nothing is computed
};

class ConvPlanner;

// Switches of the process that decide which kernels run. They may change from one call to the next,
// so what is remembered of a call is remembered under their word().
struct KernelSwitches {
  bool cudnn_enabled = true;
  bool cudnn_benchmark = false;
  bool cudnn_deterministic = false;
  bool cudnn_allow_tf32 = true;           // of convolutions
  bool deterministic_algorithms = false;  // torch.use_deterministic_algorithms
  bool prefers_cublaslt = false;          // torch.backends.cuda.preferred_blas_library
  bool matmul_allow_tf32 = false;         // torch.set_float32_matmul_precision
  std::uint8_t cudnn_depthwise = 0;       // torch's number for who computes depthwise convolutions

  bool operator==(const KernelSwitches&) const = default;
  // All of them as one number, different for any two that differ.
  [[nodiscard]] std::uint64_t word() const noexcept {
    const auto& [enabled, benchmark, deterministic, tf32, algorithms, lt, matmul, depthwise] =
        *this;
    std::uint64_t word = depthwise;
    for (const bool bit : {enabled, benchmark, deterministic, tf32, algorithms, lt, matmul}) {
      word = word << 1 | std::uint64_t{bit};
    }
    return word;
  }
};

// What torch gives to cuBLAS and cuBLASLt to work in.
struct BlasWorkspaces {
  Bytes cublas;
  Bytes cublaslt;
  bool unified = false;  // cuBLASLt uses cuBLAS' own

  bool operator==(const BlasWorkspaces&) const = default;
};

// The environment variables that say so, as they are given; empty when not set.
struct BlasEnvironment {
  std::string cublas_config;  // $CUBLAS_WORKSPACE_CONFIG, ":KiB:count" pairs
  std::string cublaslt_kib;   // $CUBLASLT_WORKSPACE_SIZE
  std::string unified;        // $TORCH_CUBLASLT_UNIFIED_WORKSPACE
};

BlasWorkspaces blas_workspaces(const DeviceProfile& gpu, const BlasEnvironment& environment = {});

// All that a call's kernels depend on beside the call and the GPU.
struct KernelState {
  std::string torch = "2.11";  // major and minor version
  KernelSwitches switches;
  std::optional<BlasWorkspaces> blas;  // none: as torch has them without any setting
  // cuDNN itself, where it is installed; it outlives the question.
  ConvPlanner* conv_planner = nullptr;
};

// Memory that stays after the op, and is shared by later ones.
enum class WorkspaceScope : std::uint8_t {
  kThreadAndStream,  // one per library handle, and each thread has its own (cuBLAS, cuBLASLt)
  kDevice,           // one per device (cuDNN's dropout state)
};

struct Step {
  enum class Kind : std::uint8_t {
    kOutput,     // allocate the storage of output `index`
    kAlloc,      // allocate scratch block `index`
    kFree,       // free scratch block `index`
    kWorkspace,  // allocate `bytes` under `key` unless that is there already; stays
  };
  Kind kind = Kind::kOutput;
  int index = 0;
  Bytes bytes;  // of kOutput: Bytes{-1} when the metadata says it
  Certainty certainty = Certainty::kExact;
  std::string_view key;  // of kWorkspace; static text
  WorkspaceScope scope = WorkspaceScope::kThreadAndStream;
};

// An output whose metadata on a GPU is not what a meta tensor says.
struct OutputChange {
  int index = 0;
  TensorMeta meta;
};

// What the op does to the allocator, in order. Every fresh output has its kOutput step, every kAlloc
// its kFree.
struct AllocationProgram {
  std::vector<Step> steps;
  std::vector<OutputChange> changes;
  // Of the op as a whole: the worst of its steps, or kOutputsOnly when nobody knows its scratch
  // memory.
  Certainty certainty = Certainty::kExact;
};

// Whether a rule says what this operator ("aten::mm") allocates. What it says may depend on the
// switches; what no rule says does not.
bool has_kernel_rule(std::string_view op);

// Thread-safe, pure. `call` is trusted to follow the op's schema: an argument of another kind than
// expected counts as not given.
AllocationProgram allocation_program(const OpCall& call, const DeviceProfile& gpu,
                                     const KernelState& state);

// torch's numbers for attention backends (SDPBackend).
enum class SdpBackend : int { kError = -1, kMath = 0, kFlash = 1, kEfficient = 2, kCudnn = 3 };

// Switches of attention (torch.backends.cuda, sdpa_kernel).
struct SdpSwitches {
  bool flash = true;
  bool efficient = true;
  bool math = true;
  bool cudnn = true;
  bool deterministic_algorithms = false;
  // Order in which they are tried, as SdpBackend numbers; empty: torch's own order for the GPU.
  std::vector<int> priority;
};

struct SdpQuery {
  TensorMeta query;  // [batch, heads, length, head size]
  TensorMeta key;
  TensorMeta value;
  TensorMeta mask;  // defined == false: none
  double dropout = 0;
  bool causal = false;
  bool enable_gqa = false;
  // Grad mode is on and one of query, key, value requires a gradient (requires_grad of the tensors
  // is used for the mask).
  bool needs_grad = true;
};

// The backend that scaled_dot_product_attention would take on this GPU.
SdpBackend sdp_choice(const SdpQuery& query, const DeviceProfile& gpu, const SdpSwitches& switches);

}  // namespace peakline
