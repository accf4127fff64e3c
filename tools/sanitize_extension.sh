#!/usr/bin/env bash
# Builds the extension module with AddressSanitizer and runs the Python tests on it.
#
#   tools/sanitize_extension.sh [PYTEST ARGUMENTS]   default: tests/python
#
# Leaks are not looked for: the interpreter and torch keep memory until the process ends. Tests that ask torch for more
# than there is get its own error, as without a sanitizer.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/asan-extension
package=$build/package
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g1" -DPEAKLINE_TORCH=ON \
  -DPEAKLINE_SANITIZE=address -DPEAKLINE_PCH=ON -DPython_EXECUTABLE="$PWD/.venv/bin/python" > /dev/null
cmake --build "$build" -j "${JOBS:-$(nproc)}" --target _C
rm -rf "$package"
mkdir -p "$package"
cp -r .venv/lib/python3*/site-packages/peakline "$package/"
cp -r "$build"/python/_torch "$package/peakline/"
# The interpreter is not linked to libstdc++, whose throw the sanitizer must find when it is loaded. Reports go to
# files, since pytest keeps what is printed of a test that ends the process.
reports=$PWD/$build/report
rm -f "$reports".*
# Where the sanitizer's own dlopen() looks for the parts of cuDNN, for the program that asks it for plans.
cudnn=$(.venv/bin/python -c 'import nvidia.cudnn; print(*nvidia.cudnn.__path__)' 2> /dev/null || true)
status=0
LD_LIBRARY_PATH=$cudnn/lib LD_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so.6)" \
  ASAN_OPTIONS=detect_leaks=0:alloc_dealloc_mismatch=0:allocator_may_return_null=1:log_path=$reports \
  PYTHONPATH=$PWD/$package PYTHONMALLOC=malloc .venv/bin/python -m pytest -p no:cacheprovider \
  -n "${JOBS:-$(nproc)}" --dist loadfile "${@:-tests/python}" || status=$?
for report in "$reports".*; do
  [[ -e $report ]] || continue
  status=1
  head -n 40 "$report"
done
exit "$status"
