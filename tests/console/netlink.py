"""Keeps netlink sockets from the browser of these tests, which would abort its requests when an address changes.

Chromium hears by them that an address of the machine has changed, and then every request fails with
ERR_NETWORK_CHANGED. Tests that run at the same time make containers, whose networks come and go.
"""

import errno
import platform
import socket
import struct

from runtimes.isolation import kernel

#: the number of the system call `socket`
_SOCKET = {"x86_64": 41, "aarch64": 198}.get(platform.machine())

#: words of the filter: load a word, go on if it equals, return; where the call's number and its first argument lie
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _FAMILY = 0, 16
_ALLOW, _ERROR = 0x7FFF_0000, 0x0005_0000

_FILTER = b"".join(
    struct.pack("HBBI", *word)
    for word in (
        (_LOAD, 0, 0, _NUMBER),
        (_IF_EQUAL, 0, 3, _SOCKET or 0),
        (_LOAD, 0, 0, _FAMILY),
        (_IF_EQUAL, 0, 1, socket.AF_NETLINK),
        (_RETURN, 0, 0, _ERROR | errno.EAFNOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
    )
)


def refuse_netlink() -> None:
    """Refuse netlink sockets to this process and to all that it runs, for good, where the call's number is known."""
    if _SOCKET:
        kernel.install_filter(_FILTER)
