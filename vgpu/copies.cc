#include "vgpu/copies.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <mutex>
#include <utility>

#include "vgpu/host_memory.h"
#include "vgpu/values.h"
#include "vgpu/values/host_run.h"
#include "vgpu/write_times.h"

namespace peakline::vgpu {
namespace {

std::mutex g_mutex;
std::function<void(const at::Tensor& copy)> g_listener;

void tell_of_made_up(const at::Tensor& copy) {
  std::function<void(const at::Tensor& copy)> listener;
  {
    const std::lock_guard guard(g_mutex);
    listener = g_listener;
  }
  if (listener) listener(copy);
}

// Whether a program fills a table of the host's: it writes behind where it wrote last. It does not
// wait for a value, however often it copies one.
bool fills_a_table(const at::Tensor& part) {
  thread_local const void* table = nullptr;
  thread_local std::int64_t last = 0;
  const c10::Storage& storage = part.storage();
  const bool goes_on = storage.data() == table && part.storage_offset() > last;
  table = storage.data();
  last = part.storage_offset();
  return goes_on && part.nbytes() < storage.nbytes();
}

bool counts_something(const at::Tensor& tensor) {
  return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

// Whole numbers in a row may be the sizes of something, or a batch's labels.
Decides decided_by(const at::Tensor& source) {
  const bool is_row = source.dim() <= 1 && at::isIntegralType(source.scalar_type(), false);
  return is_row ? Decides::kNumbers : Decides::kNothing;
}

// CUDA copies from the host whole and dense, so a tensor with gaps goes through one without.
void host_to_gpu(Engine& engine, at::Tensor& self, const at::Tensor& source, bool waits) {
  engine.clock().copy_from_host(static_cast<int>(self.device().index()),
                                static_cast<double>(self.nbytes()), source.is_pinned(), waits);
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

void tell_clock(Engine& engine, const at::Tensor& self, const at::Tensor& source, bool waits) {
  if (!is_virtual(source)) return;
  engine.clock().copy_to_host(static_cast<int>(source.device().index()),
                              static_cast<double>(source.nbytes()), self.is_pinned(), waits);
}

void gpu_to_host(Engine& engine, at::Tensor& self, const at::Tensor& source, bool waits) {
  tell_clock(engine, self, source, waits);
  stage_on_gpu(source);
  const bool made_up = counts_something(source) && !known_values(source);
  const char* const what = fills_a_table(self) ? "fill a table" : "copy to the host";
  const at::Tensor values = answered_values(engine, source, what, decided_by(source));
  {
    const HostRun host;
    self.copy_(values.expand(self.sizes()));
  }
  if (made_up) tell_of_made_up(self);
}

}  // namespace

void on_made_up_copy(std::function<void(const at::Tensor& copy)> listener) {
  const std::lock_guard guard(g_mutex);
  g_listener = std::move(listener);
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  Engine& engine = engine_or_throw("aten::copy_");
  if (self.is_same(source)) return self;
  TORCH_CHECK(at::is_expandable_to(source.sizes(), self.sizes()), "The size of tensor a (",
              self.sizes(), ") must match the size of tensor b (", source.sizes(), ")");
  const at::AutoDispatchBelowADInplaceOrView below;
  if (source.is_meta()) return self;
  if (self.numel() == 0) return self;
  if (is_virtual(self)) {
    if (is_virtual(source)) {
      tell_clock_of_write(engine, "aten::copy_", self, source);
      copy_values(engine, self, source);
    } else {
      host_to_gpu(engine, self, source, !non_blocking);
    }
  } else if (is_virtual_host(self)) {
    if (is_virtual(source)) {
      tell_clock(engine, self, source, !non_blocking);
    } else {
      tell_clock_of_write(engine, "aten::copy_", self, source);
    }
    stage_on_gpu(source);
    copy_values(engine, self, source);
  } else if (!self.is_meta()) {
    gpu_to_host(engine, self, source, !non_blocking);
  }
  return self;
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  Engine& engine = engine_or_throw("aten::_local_scalar_dense");
  engine.clock().read_value(static_cast<int>(self.device().index()));
  const at::ScalarType dtype = self.scalar_type();
  Decides decides = at::isIntegralType(dtype, false) ? Decides::kSize : Decides::kNothing;
  if (dtype == at::kBool) decides = Decides::kBranch;
  const at::Tensor value = answered_values(engine, self, "item", decides);
  const HostRun host;
  return at::_local_scalar_dense(value);
}

}  // namespace peakline::vgpu
