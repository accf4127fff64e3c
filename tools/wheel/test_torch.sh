#!/usr/bin/env bash
# Runs peakline's tests beside another torch, in an environment of its own below build/.
#
#   PYTHON=.venv/bin/python tools/wheel/test_torch.sh 2.12.0 [what pytest is to run]
#
# peakline is installed from a wheel of dist/ that has an extension for the torch's minor; without one, a wheel for that
# minor alone is built. The environment has that torch and what tests need, and is deleted afterwards: a CUDA build of
# torch brings gigabytes. KEEP=1 keeps it, for the next run.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$(realpath -s "${PYTHON:-.venv/bin/python}")
version=${1:?name a release of torch, for example: $0 2.12.0}
shift
minor=$(cut -d. -f1,2 <<< "$version")
environment=$PWD/build/test-torch/$version

find_wheel() {
  local wheel
  for wheel in dist/peakline-*.whl; do
    if [[ -f $wheel ]] && "$python" -m zipfile -l "$wheel" | grep -q "peakline/_torch/$minor/"; then
      echo "$wheel"
      return
    fi
  done
}

wheel=$(find_wheel)
if [[ -z $wheel ]]; then
  tools/wheel/build.sh "$minor"
  wheel=$(find_wheel)
fi
[[ ${KEEP:-} ]] || trap 'rm -rf "$environment"' EXIT
if [[ ! -x $environment/bin/python ]]; then
  "$python" -m venv "$environment"
  "$environment/bin/pip" install -q "torch==$version" numpy highspy "pytest>=8" "pytest-xdist>=3.5" "hypothesis>=6"
fi
"$environment/bin/pip" install -q --no-deps --force-reinstall "$wheel"
"$environment/bin/python" -c 'import peakline, torch; print(f"torch {torch.__version__}, peakline {peakline.__version__}")'
"$environment/bin/python" -m pytest -q -p no:cacheprovider "${@:-tests/python}"
