# Device profiles, and what CUDA kernels and libraries allocate.
add_executable(kernel_tests
  unit/checkpoint/checkpoint_plan_test.cc
  unit/cost/clock_test.cc
  unit/cost/op_time_test.cc
  unit/kernels/attention_test.cc
  unit/kernels/blas_test.cc
  unit/kernels/certainty_test.cc
  unit/kernels/indexing_test.cc
  unit/kernels/measured_workspaces_test.cc
  unit/kernels/norm_rnn_conv_test.cc
  unit/kernels/planned_convolution_test.cc
  unit/kernels/reduction_test.cc
  unit/kernels/rnn_workspace_test.cc
  unit/kernels/sdp_choice_conformance_test.cc
  unit/kernels/tail_split_test.cc
  unit/profile/device_profile_test.cc
)
target_compile_definitions(kernel_tests PRIVATE PEAKLINE_TEST_DATA="${CMAKE_CURRENT_SOURCE_DIR}/data")
target_link_libraries(kernel_tests PRIVATE peakline_test_support peakline_warnings)
peakline_share_precompiled(kernel_tests unit_tests)
gtest_discover_tests(kernel_tests)
