#include "planner/cudnn_api.h"

#include <dlfcn.h>

namespace peakline::planner {
namespace {

template <class Function>
void find(void* library, const char* name, Function& function, std::string& problem) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) problem = std::string("libcudnn has no ") + name;
}

// Planning without a device came with 9.8.
constexpr std::size_t kOldest = 90800;

}  // namespace

Api open_cudnn(const std::string& folder, std::string& problem) {
  Api api;
  void* library = dlopen((folder + "/libcudnn.so.9").c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    problem = dlerror();
    return api;
  }
  find(library, "cudnnBackendCreateDescriptor", api.create, problem);
  find(library, "cudnnBackendDestroyDescriptor", api.destroy, problem);
  find(library, "cudnnBackendFinalize", api.finalize, problem);
  find(library, "cudnnBackendSetAttribute", api.set, problem);
  find(library, "cudnnBackendGetAttribute", api.get, problem);
  find(library, "cudnnGetVersion", api.version, problem);
  if (problem.empty() && api.version() < kOldest) problem = "cuDNN is older than 9.8";
  return api;
}

}  // namespace peakline::planner
