#!/usr/bin/env bash
# Makes a machine with Python 3.13 in a folder, for a host whose Python is too old for the published agent server, and
# copies the project to /srv/agent-server in it. inside.sh runs commands there. What an earlier run installed stays.
# usage: setup.sh DIR      as root; needs debootstrap, and 4 GB
set -euo pipefail
dir=$1
project=$(cd "$(dirname "$0")/../.." && pwd)
packages=python3,python3-venv,ca-certificates,make,git,tmux,curl,redis-server,bubblewrap,passt,libseccomp2,iproute2

if [[ ! -e $dir/complete ]]; then
  mirror=$(cat /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null |
    sed -nE 's/^(URIs:|deb) +(http[^ ]+).*/\2/p;T;q' || true)
  rm -rf "$dir"
  mkdir -p "$dir"
  debootstrap --variant=minbase --include="$packages" trixie "$dir" "$mirror" >"$dir.log" 2>&1 \
    || { tail -5 "$dir.log" >&2; exit 1; }
  touch "$dir/complete"
fi
# As this host has them: they may differ from those of the package.
cp /etc/ssl/certs/ca-certificates.crt "$dir/etc/ssl/certs/ca-certificates.crt"
cp /etc/resolv.conf "$dir/etc/resolv.conf"

mkdir -p "$dir/srv/agent-server"
find "$dir/srv/agent-server" -mindepth 1 -maxdepth 1 ! -name '.venv*' -exec rm -rf {} +
tar -C "$project" --exclude='./.venv*' --exclude=./.git --exclude=./data --exclude='./.*_cache' -c . \
  | tar -C "$dir/srv/agent-server" -x
