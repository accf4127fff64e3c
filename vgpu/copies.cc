#include "vgpu/copies.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "vgpu/host_memory.h"
#include "vgpu/values.h"
#include "vgpu/values/host_run.h"

namespace peakline::vgpu {
namespace {

// Whole numbers in a row may be the sizes of something, or a batch's labels.
Decides decided_by(const at::Tensor& source) {
  const bool is_row = source.dim() <= 1 && at::isIntegralType(source.scalar_type(), false);
  return is_row ? Decides::kNumbers : Decides::kNothing;
}

// CUDA copies from the host whole and dense, so a tensor with gaps goes through one without.
void host_to_gpu(Engine& engine, at::Tensor& self, const at::Tensor& source) {
  if (!self.is_non_overlapping_and_dense()) {
    const at::Tensor dense = at::empty_like(self, at::MemoryFormat::Contiguous);
  }
  copy_values(engine, self, source);
}

// A tensor of the GPU with gaps is made dense there before it goes to the host.
void stage_on_gpu(const at::Tensor& source) {
  if (!is_virtual(source) || source.is_non_overlapping_and_dense()) return;
  const at::Tensor dense = at::empty_like(source, at::MemoryFormat::Contiguous);
}

void gpu_to_host(Engine& engine, at::Tensor& self, const at::Tensor& source) {
  stage_on_gpu(source);
  const at::Tensor values = answered_values(engine, source, "copy to the host", decided_by(source));
  const HostRun host;
  self.copy_(values.expand(self.sizes()));
}

}  // namespace

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool) {
  Engine& engine = engine_or_throw("aten::copy_");
  if (self.is_same(source)) return self;
  TORCH_CHECK(at::is_expandable_to(source.sizes(), self.sizes()), "The size of tensor a (",
              self.sizes(), ") must match the size of tensor b (", source.sizes(), ")");
  const at::AutoDispatchBelowADInplaceOrView below;
  if (source.is_meta()) return self;
  if (self.numel() == 0) return self;
  if (is_virtual(self)) {
    if (is_virtual(source))
      copy_values(engine, self, source);
    else
      host_to_gpu(engine, self, source);
  } else if (is_virtual_host(self)) {
    stage_on_gpu(source);
    copy_values(engine, self, source);
  } else if (!self.is_meta()) {
    gpu_to_host(engine, self, source);
  }
  return self;
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  Engine& engine = engine_or_throw("aten::_local_scalar_dense");
  const at::ScalarType dtype = self.scalar_type();
  Decides decides = at::isIntegralType(dtype, false) ? Decides::kSize : Decides::kNothing;
  if (dtype == at::kBool) decides = Decides::kBranch;
  const at::Tensor value = answered_values(engine, self, "item", decides);
  const HostRun host;
  return at::_local_scalar_dense(value);
}

}  // namespace peakline::vgpu
