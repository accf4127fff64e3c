# The program that asks cuDNN for its plans, and the process around it; cuDNN itself is not needed.
add_executable(planner_tests
  unit/planner/convolution_test.cc
  unit/planner/planner_process_test.cc
  unit/planner/request_test.cc
)
target_compile_definitions(planner_tests PRIVATE
  PEAKLINE_PLANNER="$<TARGET_FILE:peakline_planner>")
add_dependencies(planner_tests peakline_planner)
target_link_libraries(planner_tests PRIVATE
  peakline_planning peakline_test_support peakline_warnings)
peakline_share_precompiled(planner_tests unit_tests)
gtest_discover_tests(planner_tests)
