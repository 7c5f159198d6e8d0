#!/usr/bin/env bash
# Runs a command in the project on the machine that setup.sh made. All that it started ends with it.
# A change of the root by pivot_root, not by chroot: bubblewrap makes no user namespace in a chroot.
# usage: inside.sh DIR COMMAND [ARG…]      as root
set -euo pipefail
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
unset PIP_FIND_LINKS VIRTUAL_ENV # folders of this host
exec unshare --mount --pid --fork --kill-child bash -euc '
  mount --make-rprivate /
  mount --bind "$1" "$1"
  mount -t proc proc "$1/proc"
  for name in sys dev; do mount --rbind "/$name" "$1/$name"; done
  mount -t tmpfs tmpfs "$1/run"
  mkdir -p "$1/host"
  cd "$1"
  pivot_root . host
  umount -l /host
  cd /srv/agent-server
  shift
  "$@" # not by exec: as process 1 this shell reaps orphans
' bash "$@"
