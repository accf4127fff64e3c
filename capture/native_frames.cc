#include "capture/native_frames.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace peakline::capture {
namespace {

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 && text ? std::string(text.get()) : std::string(name);
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

std::size_t read_native_frames(std::span<void*> calls) noexcept {
  const int count = ::backtrace(calls.data(), static_cast<int>(calls.size()));
  return count > 0 ? static_cast<std::size_t>(count) : 0;
}

void prepare_native_frames() noexcept {
  std::array<void*, 4> calls{};
  static_cast<void>(read_native_frames(calls));
}

FramePlace native_place_of(void* call) {
  Dl_info found{};
  // A return address: the call itself lies before it, perhaps at the end of its function.
  if (::dladdr(static_cast<char*>(call) - 1, &found) == 0) return {};
  FramePlace place;
  if (found.dli_fname != nullptr) place.file = found.dli_fname;
  if (found.dli_sname != nullptr) place.function = demangled(found.dli_sname);
  return place;
}

bool runs_python(const FramePlace& place) noexcept {
  return place.function.starts_with("_PyEval_EvalFrame");
}

bool is_of_python(const FramePlace& place) noexcept {
  const std::string_view file = file_name(place.file);
  return file.starts_with("libpython") || file.starts_with("python");
}

}  // namespace peakline::capture
