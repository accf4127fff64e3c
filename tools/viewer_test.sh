#!/usr/bin/env bash
# The HTML report in a real browser: viewer_test.sh SUDO PEAKLINE MAKE_RECORDING
# Uses Debian's Chromium and downloads no browser. Where neither node nor Chromium is there nor can be
# installed, it says so and passes.
set -euo pipefail
sudo=$1
PEAKLINE=$(realpath "$2")
MAKE_RECORDING=$(realpath "$3")
export PEAKLINE MAKE_RECORDING
tools=$(dirname "$(realpath "$0")")

skip() {
  echo "peakline: tests of the HTML report are skipped: $1" >&2
  exit 0
}
if ! command -v npm > /dev/null || ! command -v node > /dev/null; then
  "$tools/apt_install.sh" "$sudo" nodejs npm || skip "node and npm are missing"
fi
if [ -z "${PEAKLINE_CHROMIUM:-}" ] && ! command -v chromium > /dev/null && ! command -v google-chrome > /dev/null; then
  "$tools/apt_install.sh" "$sudo" chromium || skip "Chromium is missing"
fi
cd "$tools/../viewer"
if [ ! -d node_modules/playwright-core ] || [ ! -d node_modules/typescript ]; then
  npm ci --no-audit --no-fund --ignore-scripts > /dev/null || skip "npm cannot install (no network?)"
fi
npm run --silent check
bundle=$(mktemp)
trap 'rm -f "$bundle"' EXIT
node build.mjs "$bundle"
if ! cmp -s "$bundle" dist/page.html; then
  echo "peakline: viewer/dist/page.html is not what viewer/src gives: run 'make viewer' and commit it" >&2
  exit 1
fi
npm run --silent test
