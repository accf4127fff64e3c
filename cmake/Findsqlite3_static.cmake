# SQLite as a target. The static library keeps our binaries free of it; it wants the C library's own parts.
find_path(SQLITE3_INCLUDE_DIR sqlite3.h)
find_library(SQLITE3_LIBRARY NAMES libsqlite3.a sqlite3)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(sqlite3_static REQUIRED_VARS SQLITE3_LIBRARY SQLITE3_INCLUDE_DIR)
if(sqlite3_static_FOUND AND NOT TARGET sqlite3::sqlite3)
  find_package(Threads REQUIRED)
  add_library(sqlite3::sqlite3 UNKNOWN IMPORTED)
  set_target_properties(sqlite3::sqlite3 PROPERTIES
    IMPORTED_LOCATION "${SQLITE3_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${SQLITE3_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")
endif()
