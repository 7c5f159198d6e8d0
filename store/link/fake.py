"""Runs fakeredis as a server on loopback, so that all workers share it:  python -m store.link.fake PORT"""

import select
import sys
from socket import socket
from typing import Any

from fakeredis import TcpFakeServer
from fakeredis.commands_mixins.scripting_mixin import ScriptingCommandsMixin

_eval = ScriptingCommandsMixin.eval


def _eval_without_flags(self: ScriptingCommandsMixin, script: bytes, *arguments: Any) -> Any:
    """Run a script without its line of flags, which fakeredis parses as Lua. fakeredis is never full."""
    return _eval(self, script.partition(b"\n")[2] if script.startswith(b"#!") else script, *arguments)


class PatientSocket(socket):
    """A socket that waits while its buffer is full. fakeredis' own socket loses the connection."""

    def sendall(self, data: Any, flags: int = 0) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[self.send(left, flags) :]
            except BlockingIOError:
                select.select([], [self], [])


class PatientServer(TcpFakeServer):
    """fakeredis' own server on patient sockets, with a backlog of more than five connections."""

    request_queue_size = 1024

    def get_request(self) -> tuple[socket, Any]:
        connection, address = super().get_request()
        return PatientSocket(fileno=connection.detach()), address


if __name__ == "__main__":
    ScriptingCommandsMixin.eval = _eval_without_flags  # type: ignore[method-assign]
    PatientServer(("127.0.0.1", int(sys.argv[1]))).serve_forever()
