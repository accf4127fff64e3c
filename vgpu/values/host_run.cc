#include "vgpu/values/host_run.h"

#include <ATen/Parallel.h>
#include <c10/core/DispatchKeySet.h>
#include <dlfcn.h>

#include "vgpu/values/in_host_run.h"

namespace peakline::vgpu {
namespace {

// at::set_num_threads() is for the whole process. OpenMP's own setting is the calling thread's, and
// torch's kernels ask it. Its library is the one that libtorch_cpu was linked to, if any.
struct OpenMp {
  void (*set_threads)(int) = nullptr;

  OpenMp() {
    void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    if (torch == nullptr) return;
    set_threads = reinterpret_cast<void (*)(int)>(dlsym(torch, "omp_set_num_threads"));
  }
};

const OpenMp& open_mp() {
  static const OpenMp kOpenMp;
  return kOpenMp;
}

thread_local int t_runs = 0;  // that are alive on this thread

c10::DispatchKeySet above_kernels() {
  return c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
         c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                              c10::DispatchKey::Functionalize});
}

}  // namespace

bool in_host_run() noexcept { return t_runs > 0; }

HostRun::HostRun()
    : keys_(c10::DispatchKeySet(c10::DispatchKey::BackendSelect), above_kernels()),
      threads_before_(0) {
  ++t_runs;
  if (open_mp().set_threads == nullptr) return;
  threads_before_ = at::get_num_threads();  // a thread's first question sets its number
  open_mp().set_threads(1);
}

HostRun::~HostRun() {
  --t_runs;
  if (threads_before_ > 0 && open_mp().set_threads != nullptr) {
    open_mp().set_threads(threads_before_);
  }
}

}  // namespace peakline::vgpu
