# How everything is compiled: C++20, warnings on, sanitizers when asked, ccache when there.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# Another clone of the same sources finds what this one has compiled: paths inside it do not count. Files that
# use precompiled headers are cached only where ccache may look past the times and macros of those headers.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime "${CCACHE_PROGRAM}")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)
  endif()
endif()

add_library(peakline_warnings INTERFACE)
target_compile_options(peakline_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlaps in std::string that are not there (its bug 105651).
  target_compile_options(peakline_warnings INTERFACE -Wno-restrict -Wno-stringop-overflow)
endif()
if(PEAKLINE_WERROR)
  target_compile_options(peakline_warnings INTERFACE -Werror)
endif()

if(PEAKLINE_SANITIZE)
  add_compile_options(-fsanitize=${PEAKLINE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${PEAKLINE_SANITIZE})
endif()

# Parsing the same headers again is a third of a sanitized build. The other builds do without, so that
# every file is still seen to include what it uses.
function(peakline_precompile target)
  if(PEAKLINE_PCH)
    target_precompile_headers(${target} PRIVATE
      <algorithm> <array> <map> <memory> <optional> <random> <span> <string> <string_view>
      <unordered_map> <variant> <vector> <fmt/format.h> ${ARGN})
  endif()
endfunction()

# The same headers as another target that is compiled with the same flags has them.
function(peakline_share_precompiled target owner)
  if(PEAKLINE_PCH)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()
