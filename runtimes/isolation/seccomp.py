"""The filter of system calls, made by libseccomp: everything is allowed but what this file names."""

import ctypes
import errno
import os
from typing import Any, NamedTuple

from runtimes.isolation.syscalls import CLONE_NEWUSER, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, prctl

#: refused with EPERM: keys of the kernel, its programs and traces, mounts, modules, namespaces, and io_uring, whose
#: operations no filter sees
_REFUSED = """\
add_key keyctl request_key bpf perf_event_open userfaultfd lookup_dcookie kexec_load kexec_file_load
open_by_handle_at name_to_handle_at init_module finit_module delete_module create_module quotactl quotactl_fd acct
swapon swapoff reboot iopl ioperm syslog vhangup settimeofday clock_settime clock_settime64 adjtimex
mount umount umount2 pivot_root move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr setns
fanotify_init io_uring_setup io_uring_enter io_uring_register
"""

#: requests that write into the input of a terminal: TIOCSTI, TIOCLINUX
_TERMINAL = (0x5412, 0x541C)

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16

#: kinds of sockets beside SOCK_STREAM, and the bits that hold a kind
_KINDS, _KIND_BITS = (2, 3, 4, 5, 6, 10), 0xF

#: protocols that Landlock does not take for TCP: DCCP, SCTP, UDP-Lite; 256 and more are SMC and MPTCP
_NOT_TCP, _FIRST_LARGE = (33, 132, 136), 256

#: a connection that a send makes, past Landlock, and the argument that holds the flags of each call
_FAST_OPEN, _SENDS = 0x2000_0000, {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}

_ALLOW, _ERROR = 0x7FFF_0000, 0x0005_0000
_BAD_ARCHITECTURE = 2  #: SCMP_FLTATR_ACT_BADARCH
_NOT_EQUAL, _EQUAL, _GREATER_EQUAL, _GREATER, _MASKED = 1, 4, 5, 6, 7


class _Test(NamedTuple):
    """A comparison of an argument; for _MASKED `value` is the mask and `other` the result."""

    argument: int
    operator: int
    value: int
    other: int = 0


class _Comparison(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def _library() -> Any:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return None
    library.seccomp_init.restype = ctypes.c_void_p
    return library


_SECCOMP = _library()

#: whether libseccomp is installed
IS_THERE = _SECCOMP is not None


def program(*, shared: bool, datagrams: bool) -> bytes:
    """The filter as the kernel's instructions; only where libseccomp is. Raises OSError.

    shared: the sandbox lives in the host's namespaces, so it makes no Unix sockets, none that Landlock does not take
    for TCP, and changes no limits of other processes. datagrams: whether UDP may be used.
    """
    context = ctypes.c_void_p(_SECCOMP.seccomp_init(_ALLOW))
    file = os.memfd_create("seccomp")
    try:
        _SECCOMP.seccomp_attr_set(context, _BAD_ARCHITECTURE, _ERROR | errno.EPERM)
        for name in _REFUSED.split():
            _refuse(context, name)
        _refuse(context, "unshare", _Test(0, _MASKED, CLONE_NEWUSER, CLONE_NEWUSER))
        _refuse(context, "clone", _Test(0, _MASKED, CLONE_NEWUSER, CLONE_NEWUSER))
        _refuse(context, "clone3", error=errno.ENOSYS)  # its flags lie in memory: libraries use clone instead
        for request in _TERMINAL:
            _refuse(context, "ioctl", _Test(1, _MASKED, 0xFFFF_FFFF, request))
        if shared:
            _refuse(context, "prlimit64", _Test(0, _NOT_EQUAL, 0))
        _refuse_sockets(context, shared=shared, datagrams=datagrams)
        if _SECCOMP.seccomp_export_bpf(context, file):
            raise OSError(errno.EINVAL, "libseccomp refuses the filter")
        return os.pread(file, 1 << 20, 0)
    finally:
        os.close(file)
        _SECCOMP.seccomp_release(context)


def _refuse_sockets(context: ctypes.c_void_p, *, shared: bool, datagrams: bool) -> None:
    families = {_AF_INET, _AF_INET6, _AF_NETLINK} | (set() if shared else {_AF_UNIX})
    for family in set(range(_AF_NETLINK)) - families:
        _refuse(context, "socket", _Test(0, _EQUAL, family))
    _refuse(context, "socket", _Test(0, _GREATER, _AF_NETLINK))
    if shared:
        for protocol in _NOT_TCP:
            _refuse(context, "socket", _Test(2, _EQUAL, protocol))
        _refuse(context, "socket", _Test(2, _GREATER_EQUAL, _FIRST_LARGE))
        for name, argument in _SENDS.items():
            _refuse(context, name, _Test(argument, _MASKED, _FAST_OPEN, _FAST_OPEN))
    if not datagrams:
        for family in (_AF_INET, _AF_INET6):
            for kind in _KINDS:
                _refuse(context, "socket", _Test(0, _EQUAL, family), _Test(1, _MASKED, _KIND_BITS, kind))


def _refuse(context: ctypes.c_void_p, name: str, *tests: _Test, error: int = errno.EPERM) -> None:
    number = _SECCOMP.seccomp_syscall_resolve_name(name.encode())
    if number < 0:  # this architecture, or this release of libseccomp, has no such call
        return
    comparisons = (_Comparison * len(tests))(*(_Comparison(*test) for test in tests))
    if _SECCOMP.seccomp_rule_add_array(context, _ERROR | error, number, len(tests), comparisons):
        raise OSError(errno.EINVAL, f"libseccomp refuses the rule of {name}")


def install(instructions: bytes) -> None:
    """Filter the system calls of this process and of all that it runs, for good. Raises OSError."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    content = ctypes.create_string_buffer(instructions, len(instructions))
    filtered = _Program(len(instructions) // 8, ctypes.addressof(content))
    prctl(PR_SET_SECCOMP, 2, ctypes.byref(filtered))
