"""Landlock, by which a process gives up files and TCP ports without being root. Source: linux/landlock.h"""

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from runtimes.isolation.syscalls import PR_SET_NO_NEW_PRIVS, prctl, syscall

_CREATE, _ADD, _RESTRICT = 444, 445, 446  #: numbers of the calls, on every architecture

_VERSION = 1  #: LANDLOCK_CREATE_RULESET_VERSION
_PATH, _PORT = 1, 2  #: types of rules

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15

#: what can be allowed for a file that is no directory
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL

#: bits of rights over files that each version of the interface knows
_FILES = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}

_BIND, _CONNECT = 1, 2

#: the first versions that restrict TCP; and abstract Unix sockets and signals
TCP, SCOPES = 4, 6

_BOTH_SCOPES = 3


@dataclass(frozen=True)
class Rules:
    """What a process keeps. Ports are of TCP."""

    readable: Iterable[str]  #: files, and directories with all below; programs there may be run
    writable: Iterable[str]
    devices: Iterable[str]
    bind: Iterable[int]
    connect: Iterable[int]


def version() -> int:
    """The version of the kernel's interface (ABI); 0 where it has no Landlock."""
    try:
        return syscall(_CREATE, None, 0, _VERSION)
    except OSError:
        return 0


def restrict(rules: Rules, abi: int) -> None:
    """Restrict this process and all that it runs, for good. A path that does not exist is left out. Raises OSError."""
    handled = (1 << _FILES.get(abi, 16)) - 1
    words = [handled] + ([_BIND | _CONNECT] if abi >= TCP else []) + ([_BOTH_SCOPES] if abi >= SCOPES else [])
    attributes = (ctypes.c_uint64 * len(words))(*words)
    ruleset = syscall(_CREATE, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    try:
        for path in rules.readable:
            _allow_path(ruleset, path, handled & (_EXECUTE | _READ_FILE | _READ_DIR))
        for path in rules.writable:
            _allow_path(ruleset, path, handled)
        for path in rules.devices:
            _allow_path(ruleset, path, handled & (_READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE | _IOCTL))
        if abi >= TCP:
            _allow_ports(ruleset, _BIND, rules.bind)
            _allow_ports(ruleset, _CONNECT, rules.connect)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        syscall(_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow_path(ruleset: int, path: str, rights: int) -> None:
    try:
        file = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOTDIR):
            return
        raise
    try:
        if not stat.S_ISDIR(os.fstat(file).st_mode):
            rights &= _OF_FILES
        syscall(_ADD, ruleset, _PATH, struct.pack("=Qi", rights, file), 0)
    finally:
        os.close(file)


def _allow_ports(ruleset: int, right: int, ports: Iterable[int]) -> None:
    for port in ports:
        rule = (ctypes.c_uint64 * 2)(right, port)
        syscall(_ADD, ruleset, _PORT, ctypes.byref(rule), 0)
