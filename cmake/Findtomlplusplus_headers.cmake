# toml++ as headers only: Debian's CMake package would add a shared library to our binaries.
find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(tomlplusplus_headers REQUIRED_VARS TOMLPLUSPLUS_INCLUDE_DIR)
if(tomlplusplus_headers_FOUND AND NOT TARGET tomlplusplus::headers)
  add_library(tomlplusplus::headers INTERFACE IMPORTED)
  set_target_properties(tomlplusplus::headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${TOMLPLUSPLUS_INCLUDE_DIR}")
endif()
