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
