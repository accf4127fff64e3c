# The caching allocator: unit and property tests, and conformance with recordings of a real GPU.
add_executable(conformance_tests
  conformance/allocator_random_test.cc
  conformance/allocator_script_test.cc
  conformance/allocator_trace_test.cc
)
target_link_libraries(conformance_tests PRIVATE peakline_test_support zstd::zstd peakline_warnings)
target_compile_definitions(conformance_tests PRIVATE
  PEAKLINE_TEST_DATA="${CMAKE_CURRENT_SOURCE_DIR}/data")
gtest_discover_tests(conformance_tests DISCOVERY_TIMEOUT 60)

add_executable(allocator_tests
  conformance/allocator_suite_test.cc
  unit/allocator/advice_test.cc
  unit/allocator/config_test.cc
  unit/allocator/driver_model_test.cc
  unit/allocator/free_list_test.cc
  unit/allocator/model_test.cc
  unit/allocator/releases_test.cc
  unit/allocator/rules_test.cc
  unit/allocator/simulate_test.cc
  unit/import/csv_test.cc
  unit/import/pickle_test.cc
  unit/import/snapshot_test.cc
)
target_link_libraries(allocator_tests PRIVATE peakline_test_support peakline_warnings)
peakline_share_precompiled(allocator_tests unit_tests)
target_include_directories(allocator_tests PRIVATE conformance)
gtest_discover_tests(allocator_tests DISCOVERY_TIMEOUT 60)
