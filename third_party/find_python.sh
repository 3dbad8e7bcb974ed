#!/bin/sh
# Prints the newest or the oldest supported Python of this machine: find_python.sh newest|oldest.
versions="3.14 3.13 3.12 3.11"
[ "$1" = oldest ] && versions="3.11 3.12 3.13 3.14"
for version in $versions; do
  for python in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/"python$version"; do
    # a shim of pyenv is there without its Python, and Debian's Pythons without ensurepip
    if "$python" -c 'import ensurepip, sys; sys.exit(sys.version_info.releaselevel != "final")' 2>/dev/null; then
      echo "$python"
      exit
    fi
  done
done
echo "stablexla takes Python 3.11 or later, with ensurepip: make PYTHON=..." >&2
echo false
