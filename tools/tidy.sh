#!/usr/bin/env bash
# clang-tidy over the source files that are compiled here, torch's part included.
#
#   tools/tidy.sh            all of it: minutes for core, an hour on two cores for what includes torch
#   tools/tidy.sh --changed  what changed: tools/tidy_files.py says which files that are
#
# cuda_trace.cc is read only where torch is a CUDA build, since it is compiled only there.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/tidy
mkdir -p build
cmake --preset tidy > build/tidy.log 2>&1 || { cat build/tidy.log; exit 1; }
cmake --build "$build" --target peakline_op_lists > build/tidy.log || { cat build/tidy.log; exit 1; }
files=$(python3 tools/tidy_files.py "$build/compile_commands.json" "$@")
[[ -n $files ]] || exit 0
echo "$files" | xargs -n 1 -P "${JOBS:-$(nproc)}" \
  clang-tidy -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option
