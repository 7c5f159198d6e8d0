#!/usr/bin/env bash
# Sets the published agent server up, and runs the tests of this folder: here, or where no Python is new enough on a
# machine of its own, which needs root, debootstrap and the package indexes. Where that cannot be had, they are skipped.
# usage: run.sh [OPTION OF PYTEST…]      INTEROP_MACHINE is the folder of the machine, kept for the next run
set -euo pipefail
cd "$(dirname "$0")/../.."
machine=${INTEROP_MACHINE:-/var/cache/agent-server-ci/interop}

status=0
python3 docs/examples/openhands_agent.py || status=$?
if ((status == 0)); then
  # Of the client alone, so no newcomer installs it.
  .venv-openhands/bin/pip install --quiet --disable-pip-version-check 'openhands-workspace>=1.58,<1.59'
  exec .venv/bin/python -m pytest tests/interop -n 2 --dist loadfile "$@" # most of their time a published program loads
elif ((status != 3)); then
  exit "$status"
elif [[ $(id -u) == 0 ]] && command -v debootstrap >/dev/null; then
  mkdir -p "$(dirname "$machine")"
  exec 9>"$machine.lock"
  flock 9 # one run at a time: they share the machine
  if tests/interop/setup.sh "$machine" && tests/interop/inside.sh "$machine" make .venv/dev openhands; then
    tests/interop/inside.sh "$machine" tests/interop/run.sh "$@"
  else
    echo "skipped: tests/interop, as its machine cannot be set up"
  fi
else
  echo "skipped: tests/interop needs Python 3.12 or newer, or root and debootstrap"
fi
