#include "vgpu/shared_code.h"
#include "vgpu/sparse/compressed_ops.h"
#include "vgpu/sparse/coo_ops.h"
#include "vgpu/sparse/sparse_kernels.h"

namespace peakline::vgpu {
namespace {

#define PEAKLINE_SHARED(name) {name, true},
#define PEAKLINE_OWN(name) {name, false},
constexpr ListedOp kCoo[] = {
#include "coo_ops.inc"
};
constexpr ListedOp kCompressed[] = {
#include "compressed_ops.inc"
};
#undef PEAKLINE_SHARED
#undef PEAKLINE_OWN

}  // namespace

void add_coo_kernels(torch::Library& aten) {
  add_shared<c10::DispatchKey::SparseCPU>(aten, kCoo, add_coo_ops(aten));
}

void add_compressed_kernels(torch::Library& aten) {
  add_shared<c10::DispatchKey::SparseCsrCPU>(aten, kCompressed, add_compressed_ops(aten));
}

std::set<std::string> add_ops_that_give_sparse(torch::Library& aten) {
  std::set<std::string> names{
      "_to_sparse",     "_to_sparse.sparse_dim", "_to_sparse_csr",         "_to_sparse_csc",
      "_to_sparse_bsr", "_to_sparse_bsc",        "_embedding_bag_backward"};
  for (const std::string& name : names) {
    aten.impl(name.c_str(),
              torch::CppFunction::makeFromBoxedFunction<&run_shared<c10::DispatchKey::CPU>>());
  }
  return names;
}

}  // namespace peakline::vgpu
