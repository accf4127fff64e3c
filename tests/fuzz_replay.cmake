# The stored inputs of every fuzz target, in every run of the tests. New findings are
# added to fuzz/corpus as files.
foreach(target allocator_steps answers import_csv settings tables trace_reader unpickler)
  add_executable(${target}_replay ${PROJECT_SOURCE_DIR}/fuzz/${target}_fuzz.cc ${PROJECT_SOURCE_DIR}/fuzz/replay_main.cc)
  target_link_libraries(${target}_replay PRIVATE peakline_test_support peakline_warnings)
  set(corpus ${PROJECT_SOURCE_DIR}/fuzz/corpus/${target})
  if(target STREQUAL "answers")
    list(APPEND corpus ${PROJECT_SOURCE_DIR}/fuzz/corpus/trace_reader)
  endif()
  add_test(NAME fuzz_corpus.${target} COMMAND ${target}_replay ${corpus})
endforeach()
