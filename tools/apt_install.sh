#!/usr/bin/env bash
# Installs the Debian packages that are missing: apt_install.sh SUDO PACKAGE...
set -euo pipefail
sudo=$1
shift
missing=()
for package in "$@"; do
  dpkg-query -W -f='${Status}' "$package" 2> /dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] && [ -z "$sudo" ]; then
  echo "peakline: these packages are missing, and neither root nor sudo is there to install them:" \
    "${missing[*]}" >&2
  exit 1
fi
$sudo apt-get update -qq
# On a fresh machine its own first updates may hold the lock for a while.
DEBIAN_FRONTEND=noninteractive $sudo apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
