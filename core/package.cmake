# Core for other C++ programs: one static and one shared library, made of the objects that everything
# here is linked with.
#
# What the public headers declare is exported, and nothing else. Everything is hidden, and core finds its
# public headers through these, which say otherwise for one header each.
set(exported "${CMAKE_CURRENT_BINARY_DIR}/exported")
file(GLOB public_headers CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}/include"
  "${CMAKE_CURRENT_SOURCE_DIR}/include/peakline/*.h")
foreach(header IN LISTS public_headers)
  file(CONFIGURE OUTPUT "${exported}/${header}" @ONLY CONTENT [[
#pragma once
#pragma GCC system_header
#pragma GCC visibility push(default)
#include_next <@header@>
#pragma GCC visibility pop
]])
endforeach()
if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)  # clang-tidy would take all that they include for the system's
  target_include_directories(peakline_core BEFORE PRIVATE "${exported}")
endif()
target_compile_options(peakline_core PRIVATE -fvisibility=hidden -fvisibility-inlines-hidden)

# A wheel does not need them: `--target peakline_package` builds them then.
set(unless_asked "")
if(DEFINED SKBUILD)
  set(unless_asked EXCLUDE_FROM_ALL)
endif()
# Precompiled headers are among a target's objects, and nothing to link.
set(core_objects $<FILTER:$<TARGET_OBJECTS:peakline_core>,EXCLUDE,\\.gch$> $<TARGET_OBJECTS:peakline_no_sqlite>)
# The database is the program's: who links the library need not have SQLite.
add_library(peakline_no_sqlite OBJECT ${unless_asked} src/export/no_sqlite.cc)
target_link_libraries(peakline_no_sqlite PRIVATE peakline_core)

add_custom_target(peakline_package DEPENDS peakline_core_shared peakline_core_static peakline_cli)

get_target_property(core_ipo peakline_core INTERPROCEDURAL_OPTIMIZATION)
if(core_ipo AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(core_ipo OFF)
  set_target_properties(peakline_core PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
endif()
set(static_objects ${core_objects})
if(core_ipo)
  # What link-time optimization leaves in an object only the very compiler that made it can read. So the
  # static library has one object, which is optimized already and plain code for every linker. In parts
  # (GCC's default) GCC 12 cannot do it.
  set(static_objects "${CMAKE_CURRENT_BINARY_DIR}/peakline_core_optimized.o")
  add_custom_command(OUTPUT "${static_objects}"
    COMMAND "${CMAKE_CXX_COMPILER}" -O3 -fPIC -w -flto -flto-partition=none -flinker-output=nolto-rel
            -r -nostdlib -o "${static_objects}" ${core_objects}
    DEPENDS ${core_objects} COMMAND_EXPAND_LISTS VERBATIM COMMENT "Optimizing core as a whole")
endif()
add_library(peakline_core_static STATIC ${unless_asked} ${static_objects})
target_link_libraries(peakline_core_static PRIVATE zstd::zstd)
add_library(peakline_core_shared SHARED ${unless_asked} ${core_objects})
set_target_properties(peakline_core_shared PROPERTIES
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} VERSION ${PROJECT_VERSION}
  INTERPROCEDURAL_OPTIMIZATION ${core_ipo})
# -w: the objects were compiled with warnings; GCC 12 has false ones where it compiles them again here.
target_link_options(peakline_core_shared PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,defs -w)
target_link_libraries(peakline_core_shared PRIVATE $<BUILD_INTERFACE:zstd::zstd>)
foreach(kind shared static)
  set_target_properties(peakline_core_${kind} PROPERTIES
    OUTPUT_NAME peakline_core LINKER_LANGUAGE CXX EXPORT_NAME core_${kind}
    ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/package")
  target_compile_features(peakline_core_${kind} INTERFACE cxx_std_20)
  target_include_directories(peakline_core_${kind} INTERFACE
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
