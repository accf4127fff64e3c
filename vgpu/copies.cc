#include "vgpu/copies.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "vgpu/values.h"

namespace peakline::vgpu {
namespace {

// Fills `host` with what the policy says about values that nobody knows.
void answer_by_policy(Engine& engine, at::Tensor& host, const char* op) {
  if (host.numel() == 0) return;
  engine.count_unknown(op);
  const ValuePolicy policy = engine.policy();
  if (host.scalar_type() == at::kBool) {
    host.fill_(policy.truth);
  } else if (at::isIntegralType(host.scalar_type(), false)) {
    host.fill_(policy.whole);
  } else {
    host.fill_(policy.number);
  }
}

void copy_to_gpu(Engine& engine, at::Tensor& self, const at::Tensor& source) {
  if (prepare_values(engine, self)) {
    values_of(self).copy_(source.expand(self.sizes()));
  } else {
    forget_values(self);
  }
}

// CUDA copies from the host whole and dense, so a tensor with gaps goes through one without.
void host_to_gpu(Engine& engine, at::Tensor& self, const at::Tensor& source) {
  if (!self.is_non_overlapping_and_dense()) {
    const at::Tensor dense = at::empty_like(self, at::MemoryFormat::Contiguous);
  }
  copy_to_gpu(engine, self, source);
}

void gpu_to_host(Engine& engine, at::Tensor& self, const at::Tensor& source) {
  if (!source.is_non_overlapping_and_dense()) {
    const at::Tensor dense = at::empty_like(source, at::MemoryFormat::Contiguous);
  }
  if (has_values(source)) {
    self.copy_(values_of(source).expand(self.sizes()));
  } else {
    answer_by_policy(engine, self, "copy to the host");
  }
}

void gpu_to_gpu(Engine& engine, at::Tensor& self, const at::Tensor& source) {
  const bool known = has_values(source);
  if (known && prepare_values(engine, self)) {
    values_of(self).copy_(values_of(source).expand(self.sizes()));
  } else {
    forget_values(self);
  }
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
      gpu_to_gpu(engine, self, source);
    else
      host_to_gpu(engine, self, source);
  } else if (!self.is_meta()) {
    gpu_to_host(engine, self, source);
  }
  return self;
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  Engine& engine = engine_or_throw("aten::_local_scalar_dense");
  if (has_values(self)) return at::_local_scalar_dense(values_of(self));
  at::Tensor host = at::empty({}, self.options().device(at::kCPU));
  answer_by_policy(engine, host, "item");
  return at::_local_scalar_dense(host);
}

}  // namespace peakline::vgpu
