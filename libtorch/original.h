// torch's own function behind one of the same name that this library puts before it.
//
// The dynamic linker takes the first definition of a name that it meets, and a program that links
// peakline::torch meets this library before torch's. So a call of torch::nn::LinearImpl::forward, from
// the program or from torch itself, comes here, is noted, and goes on to torch.
#pragma once

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <array>
#include <bit>

namespace peakline {

[[nodiscard]] inline void* next_definition(const char* name) {
  void* found = ::dlsym(RTLD_NEXT, name);
  TORCH_CHECK(found != nullptr, "peakline::torch was built for another torch than this one: ", name,
              " is not in it");
  return found;
}

// A function of a class as compilers for Linux keep it: where its code is, and what to add to `this`.
using MemberCode = std::array<void*, 2>;

template <class Function>
[[nodiscard]] Function as_member(void* code) {
  return std::bit_cast<Function>(MemberCode{code, nullptr});
}

// `function` is not virtual, and is exported.
template <class Function>
[[nodiscard]] Function original(Function function) {
  Dl_info here{};
  const bool named = ::dladdr(std::bit_cast<MemberCode>(function)[0], &here) != 0;
  TORCH_CHECK(named && here.dli_sname != nullptr,
              "the dynamic linker does not know the name of a function of torch's");
  return as_member<Function>(next_definition(here.dli_sname));
}

}  // namespace peakline
