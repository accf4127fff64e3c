# The torch next to Python, as the targets torch::libtorch and torch::python.
# torch's own CMake package is not used: with a CUDA build it insists on a whole CUDA toolkit.
# -I makes Python see its own site-packages even inside pip's isolated build environment.
set(PEAKLINE_TORCH_ROOT "" CACHE PATH "A folder with torch/ in it, unpacked and not installed; default: the torch beside Python")
set(torch_question
  "import os, torch; print(os.path.dirname(torch.__file__)); print(torch.__version__); print(torch.version.cuda or '')")
if(PEAKLINE_TORCH_ROOT)
  # Headers and libraries are enough to build for it; importing it may need gigabytes more.
  set(torch_question
    "import runpy; v = runpy.run_path('${PEAKLINE_TORCH_ROOT}/torch/version.py'); print('${PEAKLINE_TORCH_ROOT}/torch'); print(v['__version__']); print(v['cuda'] or '')")
endif()
execute_process(
  COMMAND "${Python_EXECUTABLE}" -I -c "${torch_question}"
  OUTPUT_VARIABLE torch_facts ERROR_VARIABLE torch_error
  OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE torch_failed)
if(torch_failed)
  message(FATAL_ERROR "peakline needs torch 2.11 to 2.15 installed beside ${Python_EXECUTABLE}; "
    "install it first, for example: pip install torch==2.13.0")
endif()
string(REPLACE "\n" ";" torch_facts "${torch_facts}")
list(GET torch_facts 0 TORCH_DIR)
list(GET torch_facts 1 TORCH_VERSION)
list(LENGTH torch_facts torch_fact_count)
set(TORCH_CUDA "")
if(torch_fact_count GREATER 2)
  list(GET torch_facts 2 TORCH_CUDA)
endif()
string(REGEX MATCH "^[0-9]+\\.[0-9]+" torch_series "${TORCH_VERSION}")
if(torch_series VERSION_LESS 2.11 OR torch_series VERSION_GREATER 2.15)
  message(FATAL_ERROR "peakline supports torch 2.11 to 2.15, and found ${TORCH_VERSION} in ${TORCH_DIR}")
endif()

# torch::libtorch is what C++ programs need; torch::python adds the part that knows Python.
add_library(torch::libtorch INTERFACE IMPORTED)
target_include_directories(torch::libtorch SYSTEM INTERFACE
  "${TORCH_DIR}/include" "${TORCH_DIR}/include/torch/csrc/api/include")
foreach(lib torch torch_cpu c10)
  target_link_libraries(torch::libtorch INTERFACE "${TORCH_DIR}/lib/lib${lib}.so")
endforeach()
add_library(torch::python INTERFACE IMPORTED)
target_link_libraries(torch::python INTERFACE torch::libtorch "${TORCH_DIR}/lib/libtorch_python.so")
set(TorchPython_FOUND TRUE)
message(STATUS "torch ${TORCH_VERSION} in ${TORCH_DIR}")
