"""System calls that Python's standard library lacks. Each raises OSError. Linux only.

libseccomp creates the system call filter: everything is allowed except the calls in this file. With Landlock a process
gives up files and TCP ports without being root. Source: linux/landlock.h
"""

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x0002_0000, 0x1000_0000, 0x4000_0000

MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x4_0000

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38

#: Version 3 of a capability header, and the number of its 32-bit data words. Source: linux/capability.h
_CAPABILITY_HEADER, _CAPABILITY_WORDS = (ctypes.c_uint32 * 2)(0x2008_0522, 0), ctypes.c_uint32 * 6

_libc = ctypes.CDLL(None, use_errno=True)


#: Refused with EPERM: keys of the kernel, its programs and traces, mounts, modules, namespaces, and io_uring, whose
#: operations no filter sees.
_REFUSED = """\
add_key keyctl request_key bpf perf_event_open userfaultfd lookup_dcookie kexec_load kexec_file_load
open_by_handle_at name_to_handle_at init_module finit_module delete_module create_module quotactl quotactl_fd acct
swapon swapoff reboot iopl ioperm syslog vhangup settimeofday clock_settime clock_settime64 adjtimex
mount umount umount2 pivot_root move_mount open_tree open_tree_attr fsopen fsconfig fsmount fspick mount_setattr setns
fanotify_init fanotify_mark io_uring_setup io_uring_enter io_uring_register
"""

#: Also refused in the host's namespaces, because Landlock does not check them: names of files that are created
#: elsewhere, attributes of files, and shared memory, queues and semaphores with a number (System V) or a name. All
#: sandboxes and the host would share them, and they would outlive their sandbox.
_UNCHECKED = """\
inotify_init inotify_init1 inotify_add_watch
setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat file_setattr
ipc shmget shmat shmctl msgget msgsnd msgrcv msgctl semget semop semtimedop semctl mq_open mq_unlink
"""

#: Calls that an old libseccomp may not know although the kernel has them. From 424 on a call has one number on all
#: architectures except Alpha and MIPS.
_NUMBERS = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "clone3": 435,
    "openat2": 437,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "fchmodat2": 452,
    "setxattrat": 463,
    "removexattrat": 466,
    "open_tree_attr": 467,
    "file_setattr": 469,
}
_UNKNOWN = -1  #: __NR_SCMP_ERROR; calls that this architecture lacks have other negative numbers

#: Mode bits: set-uid and set-gid.
_SET_IDS = (0o4000, 0o2000)

#: Position of the mode argument in calls that change a mode or create a file.
_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}

#: Positions of flags and mode. The mode counts with one of these flags: O_CREAT, and the bit that O_TMPFILE adds.
_OPENS, _MAKING = {"open": (1, 2), "openat": (2, 3)}, (0o100, 0o20000000)

#: Requests that write into the input of a terminal: TIOCSTI, TIOCLINUX.
_TERMINAL = (0x5412, 0x541C)

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16

#: Kinds of sockets other than SOCK_STREAM, and the bits of the kind.
_KINDS, _KIND_BITS = (2, 3, 4, 5, 6, 10), 0xF

#: permanently connected, like SOCK_STREAM
_SOCK_SEQPACKET = 5

#: Protocols that Landlock does not treat as TCP: DCCP, SCTP, UDP-Lite; from 256 on, SMC and MPTCP.
_NOT_TCP, _FIRST_LARGE = (33, 132, 136), 256

#: MSG_FASTOPEN connects in a send, past Landlock; and the position of each call's flags.
_FAST_OPEN, _SENDS = 0x2000_0000, {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}

_ALLOW, _ERROR = 0x7FFF_0000, 0x0005_0000
_BAD_ARCHITECTURE = 2  #: SCMP_FLTATR_ACT_BADARCH
_NOT_EQUAL, _EQUAL, _GREATER_EQUAL, _GREATER, _MASKED = 1, 4, 5, 6, 7

_CREATE, _ADD, _RESTRICT = 444, 445, 446  #: numbers of the calls, on every architecture

_VERSION = 1  #: LANDLOCK_CREATE_RULESET_VERSION
_PATH, _PORT = 1, 2  #: types of rules

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15

#: Rights that apply to a file other than a directory.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL

#: Bits of file rights by version of the interface.
_FILES = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}

_BIND, _CONNECT = 1, 2

#: First versions that restrict TCP; abstract Unix sockets and signals.
TCP, SCOPES = 4, 6

#: Abstract Unix sockets and signals; signals only.
_BOTH_SCOPES, _SIGNALS = 3, 2


def prctl(option: int, value: int | ctypes.Array[ctypes.c_char] = 0, *more: object) -> None:
    words = [value, *more, 0, 0, 0][:4]
    _checked(_libc.prctl(option, *(ctypes.c_ulong(word) if isinstance(word, int) else word for word in words)))


def syscall(number: int, *arguments: object) -> int:
    """Make a system call by number. Integers are passed as 64 bits."""
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    _libc.syscall.restype = ctypes.c_long
    return _checked(_libc.syscall(ctypes.c_long(number), *words))


def unshare(flags: int) -> None:
    """Give the calling thread new namespaces. A user namespace needs a process with one thread."""
    _checked(_libc.unshare(flags))


def setns(file: int, kind: int) -> None:
    """Move the calling thread into the namespace of an open file."""
    _checked(_libc.setns(file, kind))


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount a file system, or bind a file or folder to another place."""
    words = [word.encode() or None for word in (source, target, kind)]
    _checked(_libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None))


def become(user: int) -> None:
    """Change from root to a user and the group of the same number, without other groups. The process has one thread."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def drop_capabilities() -> None:
    """Drop every capability, also for programs that are run later."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except PermissionError:  # a process without capabilities has none to drop
            break
        except OSError:  # the kernel has no further capability
            break
    _checked(_libc.capset(_CAPABILITY_HEADER, _CAPABILITY_WORDS()))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


class _Test(NamedTuple):
    """A comparison of an argument. For _MASKED `value` is the mask and `other` the result."""

    argument: int
    operator: int
    value: int
    other: int = 0


class _Comparison(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


class _FilterProgram(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def _library() -> Any:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return None
    library.seccomp_init.restype = ctypes.c_void_p
    return library


_SECCOMP = _library()

HAS_SECCOMP = _SECCOMP is not None


def filter_program(*, shared: bool, datagrams: bool) -> bytes:
    """Return the filter as instructions for the kernel. Needs libseccomp. Raises OSError.

    shared: the sandbox lives in the host's namespaces. Then Unix sockets are refused except connected pairs, and also
    sockets that Landlock does not treat as TCP, file watches, System V memory, queues and semaphores, and changes of
    file attributes and of other processes' limits. datagrams: whether UDP is allowed.
    """
    context = ctypes.c_void_p(_SECCOMP.seccomp_init(_ALLOW))
    file = os.memfd_create("seccomp")
    try:
        _SECCOMP.seccomp_attr_set(context, _BAD_ARCHITECTURE, _ERROR | errno.EPERM)
        for name in _REFUSED.split():
            _refuse(context, name)
        _refuse(context, "unshare", _Test(0, _MASKED, CLONE_NEWUSER, CLONE_NEWUSER))
        _refuse(context, "clone", _Test(0, _MASKED, CLONE_NEWUSER, CLONE_NEWUSER))
        _refuse(context, "clone3", error=errno.ENOSYS)  # no filter sees its flags; libraries fall back to clone
        for request in _TERMINAL:
            _refuse(context, "ioctl", _Test(1, _MASKED, 0xFFFF_FFFF, request))
        _refuse_set_ids(context)
        if shared:
            for name in _UNCHECKED.split():
                _refuse(context, name)
            _refuse(context, "prlimit64", _Test(0, _NOT_EQUAL, 0))
        _refuse_sockets(context, shared=shared, datagrams=datagrams)
        if _SECCOMP.seccomp_export_bpf(context, file):
            raise OSError(errno.EINVAL, "libseccomp refuses the filter")
        return os.pread(file, 1 << 20, 0)
    finally:
        os.close(file)
        _SECCOMP.seccomp_release(context)


def _refuse_set_ids(context: ctypes.c_void_p) -> None:
    """Refuse the set-uid and set-gid bits. Outside of the sandbox such files would run as its user."""
    for bit in _SET_IDS:
        for name, argument in _MODES.items():
            _refuse(context, name, _Test(argument, _MASKED, bit, bit))
        for name, (flags, mode) in _OPENS.items():
            for making in _MAKING:
                _refuse(context, name, _Test(flags, _MASKED, making, making), _Test(mode, _MASKED, bit, bit))
    _refuse(context, "openat2", error=errno.ENOSYS)  # no filter sees its mode; programs fall back to openat


def _refuse_sockets(context: ctypes.c_void_p, *, shared: bool, datagrams: bool) -> None:
    families = {_AF_INET, _AF_INET6, _AF_NETLINK} | (set() if shared else {_AF_UNIX})
    for family in set(range(_AF_NETLINK)) - families:
        _refuse(context, "socket", _Test(0, _EQUAL, family))
    _refuse(context, "socket", _Test(0, _GREATER, _AF_NETLINK))
    if shared:
        _refuse(context, "socketpair", _Test(0, _NOT_EQUAL, _AF_UNIX))
        for kind in {*_KINDS} - {_SOCK_SEQPACKET}:  # a pair of datagram sockets can send to any socket by its path
            _refuse(context, "socketpair", _Test(1, _MASKED, _KIND_BITS, kind))
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
    if number == _UNKNOWN:
        number = _NUMBERS.get(name, _UNKNOWN)
    if number == _UNKNOWN:
        raise OSError(errno.ENOSYS, f"libseccomp does not know {name}")
    if number < 0:
        return
    comparisons = (_Comparison * len(tests))(*(_Comparison(*test) for test in tests))
    if _SECCOMP.seccomp_rule_add_array(context, _ERROR | error, number, len(tests), comparisons):
        raise OSError(errno.EINVAL, f"libseccomp refuses the rule of {name}")


def install_filter(instructions: bytes) -> None:
    """Filter the system calls of this process and its children permanently. Raises OSError."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    content = ctypes.create_string_buffer(instructions, len(instructions))
    filtered = _FilterProgram(len(instructions) // 8, ctypes.addressof(content))
    prctl(PR_SET_SECCOMP, 2, ctypes.byref(filtered))


@dataclass(frozen=True)
class LandlockRules:
    """Remaining access of a process. Ports are TCP."""

    readable: Iterable[str]  #: files, and directories with all below; programs there may be run
    writable: Iterable[str]
    devices: Iterable[str]
    bind: Iterable[int]
    connect: Iterable[int]


def landlock_version() -> int:
    """Return the version of the kernel's interface (ABI); 0 without Landlock."""
    try:
        return syscall(_CREATE, None, 0, _VERSION)
    except OSError:
        return 0


def restrict(rules: LandlockRules, abi: int) -> None:
    """Restrict this process and its children permanently. Missing paths are skipped. Raises OSError."""
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


def scope_signals() -> bool:
    """Restrict signals of this process and its children to each other. Return False if that does not work.

    The process has one thread, and a parent that it could signal before.
    """
    if landlock_version() < SCOPES:
        return False
    attributes = (ctypes.c_uint64 * 3)(0, 0, _SIGNALS)
    try:
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        ruleset = syscall(_CREATE, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
        try:
            syscall(_RESTRICT, ruleset, 0)
        finally:
            os.close(ruleset)
    except OSError:
        return False
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:  # so it works: the caller may now signal "everybody"
        return True
    except OSError:
        pass
    return False


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
