// A cuBLASLt that multiplies nothing, for the planner's process alone. cuDNN runs windows of one pixel
// as matrix products, and asks cuBLASLt whether it has a kernel for them; the real one says no when
// there is no GPU, and cuDNN would then plan for something that no GPU runs. This one has a kernel for
// everything, and it needs no workspace.
#include <array>
#include <cstdint>
#include <cstdlib>

namespace {

// cublasLtMatmulHeuristicResult_t
struct Found {
  std::array<std::uint64_t, 8> algorithm;
  std::size_t workspace;
  int status;
  float waves;
  std::array<int, 4> reserved;
};

// What the real handles and descriptors have room for.
int make(void** made) {
  constexpr std::size_t kRoom = 4096;
  *made = std::calloc(1, kRoom);
  return *made == nullptr ? 1 : 0;
}

int let_go(void* made) {
  std::free(made);
  return 0;
}

}  // namespace

extern "C" {

std::size_t cublasLtGetVersion() { return 130101; }
int cublasLtCreate(void** made) { return make(made); }
int cublasLtDestroy(void* made) { return let_go(made); }
int cublasLtMatmulDescCreate(void** made, int, int) { return make(made); }
int cublasLtMatmulDescDestroy(void* made) { return let_go(made); }
int cublasLtMatrixLayoutCreate(void** made, int, std::uint64_t, std::uint64_t, std::int64_t) {
  return make(made);
}
int cublasLtMatrixLayoutDestroy(void* made) { return let_go(made); }
int cublasLtMatmulPreferenceCreate(void** made) { return make(made); }
int cublasLtMatmulPreferenceDestroy(void* made) { return let_go(made); }
int cublasLtMatrixTransformDescCreate(void** made, int) { return make(made); }
int cublasLtMatrixTransformDescDestroy(void* made) { return let_go(made); }

int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int room,
                                   Found* found, int* count) {
  *count = room > 0 ? 1 : 0;
  if (room > 0) *found = Found{};
  return 0;
}

// Settings are taken and forgotten; nothing is ever computed.
#define PEAKLINE_DOES_NOTHING(name) \
  int name() { return 0; }
PEAKLINE_DOES_NOTHING(cublasLtGetProperty)
PEAKLINE_DOES_NOTHING(cublasLtMatmul)
PEAKLINE_DOES_NOTHING(cublasLtMatmulDescGetAttribute)
PEAKLINE_DOES_NOTHING(cublasLtMatmulDescInit_internal)
PEAKLINE_DOES_NOTHING(cublasLtMatmulDescSetAttribute)
PEAKLINE_DOES_NOTHING(cublasLtMatmulPreferenceInit_internal)
PEAKLINE_DOES_NOTHING(cublasLtMatmulPreferenceSetAttribute)
PEAKLINE_DOES_NOTHING(cublasLtMatrixLayoutGetAttribute)
PEAKLINE_DOES_NOTHING(cublasLtMatrixLayoutInit_internal)
PEAKLINE_DOES_NOTHING(cublasLtMatrixLayoutSetAttribute)
PEAKLINE_DOES_NOTHING(cublasLtMatrixTransform)
PEAKLINE_DOES_NOTHING(cublasLtMatrixTransformDescGetAttribute)
PEAKLINE_DOES_NOTHING(cublasLtMatrixTransformDescInit_internal)
PEAKLINE_DOES_NOTHING(cublasLtMatrixTransformDescSetAttribute)
#undef PEAKLINE_DOES_NOTHING
}
