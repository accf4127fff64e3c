#include "libtorch/planner_files.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

namespace peakline {
namespace {

namespace fs = std::filesystem;

fs::path planner_program() {
  if (const char* named = std::getenv("PEAKLINE_PLANNER")) return named;
  Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&find_planner), &here) == 0) return {};
  const fs::path folder = fs::path(here.dli_fname).parent_path();
  return folder / ".." / "libexec" / "peakline" / "peakline-planner";
}

}  // namespace

std::optional<PlannerFiles> find_planner() {
  const char* folder = std::getenv("PEAKLINE_CUDNN");
  if (folder == nullptr || std::string_view(folder) == "off") return std::nullopt;
  const fs::path program = planner_program();
  std::error_code none;
  if (!fs::exists(fs::path(folder) / "libcudnn.so.9", none) || !fs::exists(program, none)) {
    return std::nullopt;
  }
  return PlannerFiles{program.string(), folder};
}

}  // namespace peakline
