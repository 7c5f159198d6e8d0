"""fakeredis as a server of its own on loopback, so that all workers share it:  python -m store.fake PORT"""

import select
import sys
from socket import socket
from typing import Any

from fakeredis import TcpFakeServer


class PatientSocket(socket):
    """fakeredis sends on a non-blocking socket and loses the connection over a reply that fills its buffer."""

    def sendall(self, data: Any, flags: int = 0) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[self.send(left, flags) :]
            except BlockingIOError:
                select.select([], [self], [])


class PatientServer(TcpFakeServer):
    """fakeredis' own server, on patient sockets, for more than five clients that come at once."""

    request_queue_size = 1024

    def get_request(self) -> tuple[socket, Any]:
        connection, address = super().get_request()
        return PatientSocket(fileno=connection.detach()), address


if __name__ == "__main__":
    PatientServer(("127.0.0.1", int(sys.argv[1]))).serve_forever()
