#!/usr/bin/env bash
# Builds dist/: an sdist and one wheel with an extension for each minor release of torch.
#
#   PYTHON=.venv/bin/python tools/wheel/build.sh 2.11 2.13
#
# The core is compiled once, as a shared library that the extensions link; so is the program, which needs neither. An
# extension is compiled with the headers of its torch, which is unpacked below build/torch and not installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$(realpath -s "${PYTHON:-.venv/bin/python}")
jobs=${JOBS:-$(nproc)}
work=$PWD/build/wheel
parts=$work/parts
[[ $# -gt 0 ]] || { echo "name the minor releases of torch to build for, for example: $0 2.13" >&2; exit 2; }

cmake -S . -B "$work/core" -G Ninja -DCMAKE_BUILD_TYPE=Release > "$work.log" || { cat "$work.log"; exit 1; }
cmake --build "$work/core" -j "$jobs" --target peakline_core_shared peakline_cli peakline_planner peakline_cublaslt_12 peakline_cublaslt_13
core=$work/core/core/libpeakline_core.so
rm -rf "$parts"
mkdir -p "$parts/bin" "$parts/peakline/_lib" "$parts/peakline/_planner"
install -s "$work/core/cli/peakline" "$parts/bin/"
install -s "$core" "$parts/peakline/_lib/$(readlink "$core")"  # the name that who links it asks for
install -s "$work/core/planner/peakline-planner" "$work"/core/planner/peakline_cublasLt_*.so "$parts/peakline/_planner/"

headers=$PWD/build/torch
for minor in "$@"; do
  version=$("$python" tools/wheel/unpack_torch.py "$minor" "$headers")
  tree=$work/torch-$minor
  cmake -S . -B "$tree" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPEAKLINE_TORCH=ON -DPEAKLINE_CORE_LIBRARY="$core" \
    -DPEAKLINE_TORCH_ROOT="$headers/$version" -DPython_EXECUTABLE="$python" \
    -DPEAKLINE_CUDA_INCLUDE_DIR="$headers/nvidia-cuda-runtime/nvidia/cu13/include;$headers/nvidia-cuda-crt/nvidia/cu13/include" > "$work.log" || { cat "$work.log"; exit 1; }
  cmake --build "$tree" -j "$jobs" --target _C
  DESTDIR=$parts cmake --install "$tree" --component python --prefix / --strip > /dev/null
done

rm -rf dist "$work/dist"
"$python" -m pip wheel -q --no-deps --no-build-isolation -w "$work/dist" -C cmake.define.PEAKLINE_WHEEL_PARTS="$parts" \
  -C cmake.define.PEAKLINE_TORCH=OFF -C build-dir="$work/last" .
"$python" -m build -q --sdist --no-isolation -o dist .
"$python" tools/wheel/tag.py "$work"/dist/*.whl dist
