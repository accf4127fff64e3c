#!/usr/bin/env bash
# Builds peakline beside the installed torch without pip or a network, then runs what needs a GPU.
#
#   tools/gpu_check.sh [WORKLOADS.py]
#
# DEPS     folder with usr/{include,lib} of zstd, fmt, nlohmann-json, CLI11 and toml++, where they are not installed
# PYTHON   the Python with torch (default: python3)
# OUT      where results are put (default: build/gpu/results)
# OVERHEAD_ARGS  for benchmarks/overhead.py on the workloads (default: --pairs 9 --steps 6)
# ONLY     any of: build tests exact overhead (default: all)
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
python=${PYTHON:-python3}
out=${OUT:-$root/build/gpu/results}
only=${ONLY:-build tests exact overhead}
workloads=${1:-}
pkg=$root/build/gpu/package
mkdir -p "$out" "$pkg"
wants() { [[ " $only " == *" $1 "* ]]; }
failed=0

if wants build; then
  generator=(); command -v ninja > /dev/null && generator=(-G Ninja)
  cmake -S . -B build/gpu "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DPEAKLINE_TORCH=ON \
    -DPython_EXECUTABLE="$(command -v "$python")" ${DEPS:+-DCMAKE_PREFIX_PATH="$DEPS/usr"} > "$out/configure.log" 2>&1 \
    && cmake --build build/gpu --target _C peakline_planner peakline_cublaslt_12 peakline_cublaslt_13 -j "$(nproc)" > "$out/build.log" 2>&1 \
    || { tail -n 20 "$out/configure.log"; tail -n 20 "$out/build.log"; echo "build failed"; exit 1; }
  grep "CUDA allocator trace" "$out/configure.log"
  cp -r python/peakline "$pkg/"
  cp -r build/gpu/python/_torch "$pkg/peakline/"
  mkdir -p "$pkg/peakline/_planner"
  cp build/gpu/planner/peakline-planner build/gpu/planner/peakline_cublasLt_*.so "$pkg/peakline/_planner/"
fi
export PYTHONPATH=$pkg
"$python" -c "import peakline; print('peakline', peakline.__version__)" || exit 1

if wants tests; then
  if "$python" -c "import pytest" 2> /dev/null; then
    "$python" -m pytest -q tests/gpu 2>&1 | tee "$out/tests.txt" | tail -40
    [[ ${PIPESTATUS[0]} -eq 0 ]] || failed=1
  else
    "$python" tools/run_plain_tests.py tests/gpu 2>&1 | tee "$out/tests.txt" | tail -40
    [[ ${PIPESTATUS[0]} -eq 0 ]] || failed=1
  fi
fi
if wants exact && [[ -n $workloads ]]; then
  "$python" tests/gpu/test_exact_peak.py "$workloads" 2>&1 | tee "$out/exact.txt" | grep -E "^(exact|FAILED)"
  [[ ${PIPESTATUS[0]} -eq 0 ]] || failed=1
fi
if wants overhead; then
  if [[ -n $workloads ]]; then
    "$python" benchmarks/overhead.py --workloads "$workloads" gpt2_fp32 llama1b_ac vit_large \
      ${OVERHEAD_ARGS:---pairs 9 --steps 6} --json "$out/overhead_gpu.json" 2>&1 | tee "$out/overhead_gpu.txt" | grep "|"
  fi
  "$python" benchmarks/overhead.py --json "$out/overhead_cpu.json" 2>&1 | tee "$out/overhead_cpu.txt" | grep "|"
fi
exit $failed
