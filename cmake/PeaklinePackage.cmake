# What `cmake --install` gives: headers, libraries, the program, and a package for find_package(peakline).
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/peakline")

install(DIRECTORY "${PROJECT_SOURCE_DIR}/core/include/peakline" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  COMPONENT cpp)
install(TARGETS peakline_core_static EXPORT peakline_static
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT cpp)
install(TARGETS peakline_core_shared EXPORT peakline_shared
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT cpp NAMELINK_COMPONENT cpp)
install(TARGETS peakline_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT cpp)
set(components shared static)
if(TARGET peakline_torch)
  list(APPEND components torch)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/libtorch/include/peakline" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    COMPONENT cpp_torch)
  install(TARGETS peakline_torch EXPORT peakline_torch
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT cpp_torch NAMELINK_COMPONENT cpp_torch)
  install(TARGETS peakline_planner peakline_cublaslt_12 peakline_cublaslt_13
    RUNTIME DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/peakline" COMPONENT cpp_torch
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/peakline" COMPONENT cpp_torch)
  install(FILES "${CMAKE_CURRENT_LIST_DIR}/FindTorchPython.cmake" DESTINATION "${package_dir}" COMPONENT cpp_torch)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" PEAKLINE_TORCH_SERIES "${TORCH_VERSION}")
  add_custom_target(peakline_torch_package
    DEPENDS peakline_torch peakline_planner peakline_cublaslt_12 peakline_cublaslt_13)
endif()
foreach(kind IN LISTS components)
  set(component cpp)
  if(kind STREQUAL "torch")
    set(component cpp_torch)  # a wheel's build has it only where it was asked for
  endif()
  install(EXPORT peakline_${kind} NAMESPACE peakline:: FILE peakline-${kind}.cmake
    DESTINATION "${package_dir}" COMPONENT ${component})
endforeach()

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/peakline-config.cmake.in"
  "${PROJECT_BINARY_DIR}/peakline-config.cmake" INSTALL_DESTINATION "${package_dir}")
# Before 1.0 a minor release may change the API.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/peakline-config-version.cmake"
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/peakline-config.cmake"
  "${PROJECT_BINARY_DIR}/peakline-config-version.cmake" "${CMAKE_CURRENT_LIST_DIR}/Findzstd_static.cmake"
  DESTINATION "${package_dir}" COMPONENT cpp)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/THIRD_PARTY_NOTICES.md"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT cpp)
