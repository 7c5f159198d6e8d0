#!/usr/bin/env bash
# Fetches the published web client of OpenHands and what its own static server needs, without its other packages: those
# are built into it. Then `AGENT_CANVAS=DIR/package make test-interop` runs it. Needs node 20 or newer and npm.
# usage: web_client.sh DIR
set -euo pipefail
mkdir -p "$1"
cd "$1"
archive=$(npm pack --silent @openhands/agent-canvas@1.20.0)
tar xzf "$archive"
npm install --silent --no-fund --no-audit --prefix . sirv@3 httpxy@0.5
