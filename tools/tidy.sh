#!/usr/bin/env bash
# clang-tidy over every source file that is compiled here, torch's part included.
#
#   tools/tidy.sh            all of it: minutes for core, an hour on two cores for what includes torch
#   tools/tidy.sh --changed  what changed since LINT_BASE (default: the last commit a day older than this one)
#
# cuda_trace.cc is read only where torch is a CUDA build, since it is compiled only there.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/tidy
mkdir -p build
cmake --preset tidy > build/tidy.log 2>&1 || { cat build/tidy.log; exit 1; }
cmake --build "$build" --target peakline_op_lists > build/tidy.log || { cat build/tidy.log; exit 1; }

compiled=$(python3 -c '
import json, os, sys
root = os.getcwd() + "/"
files = {entry["file"] for entry in json.load(open(sys.argv[1]))}
print("\n".join(sorted(f[len(root):] for f in files if f.startswith(root) and "/build/" not in f)))
' "$build/compile_commands.json")

if [[ ${1:-} == --changed ]]; then
  head_time=$(git log -1 --format=%ct)
  base=${LINT_BASE:-$(git rev-list -1 --before="$((head_time - 86400))" HEAD)}
  [[ -n $base ]] || base=$(git rev-list --max-parents=0 HEAD | tail -n 1)
  # A header is read with the source file of its name.
  changed=$(git diff --name-only --diff-filter=d "$base" -- '*.cc' '*.h' | sed 's/\.h$/.cc/' | sort -u)
  compiled=$(comm -12 <(echo "$compiled" | sort) <(echo "$changed"))
fi
[[ -n $compiled ]] || { echo "clang-tidy: nothing to read"; exit 0; }
echo "clang-tidy: $(echo "$compiled" | wc -l) files"
echo "$compiled" | xargs -n 1 -P "${JOBS:-$(nproc)}" \
  clang-tidy -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option
