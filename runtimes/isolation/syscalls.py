"""System calls that Python's standard library lacks. Each raises OSError. Linux only."""

import ctypes
import os

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x0002_0000, 0x1000_0000, 0x4000_0000

MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x4_0000

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38

#: version 3 of a capability header, and the words of 32 bits that its data have. Source: linux/capability.h
_CAPABILITY_HEADER, _CAPABILITY_WORDS = (ctypes.c_uint32 * 2)(0x2008_0522, 0), ctypes.c_uint32 * 6

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int | ctypes.Array[ctypes.c_char] = 0, *more: object) -> None:
    """Change an attribute of the calling process or thread."""
    words = [value, *more, 0, 0, 0][:4]
    _checked(_libc.prctl(option, *(ctypes.c_ulong(word) if isinstance(word, int) else word for word in words)))


def syscall(number: int, *arguments: object) -> int:
    """Make a system call by its number; integers are passed as 64 bits."""
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    _libc.syscall.restype = ctypes.c_long
    return _checked(_libc.syscall(ctypes.c_long(number), *words))


def unshare(flags: int) -> None:
    """Give the calling thread new namespaces; a user namespace only where the process has one thread."""
    _checked(_libc.unshare(flags))


def setns(file: int, kind: int) -> None:
    """Move the calling thread into the namespace of an open file."""
    _checked(_libc.setns(file, kind))


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount a file system, or bind a file or folder to another place."""
    words = [word.encode() or None for word in (source, target, kind)]
    _checked(_libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None))


def become(user: int) -> None:
    """Give up root for a user and the group of the same number, in no other group. The process has one thread."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def drop_capabilities() -> None:
    """Give up every capability, so that no program which is run later gets one either."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except PermissionError:  # a process without capabilities has none to give up
            break
        except OSError:  # the kernel knows no more
            break
    _checked(_libc.capset(_CAPABILITY_HEADER, _CAPABILITY_WORDS()))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
