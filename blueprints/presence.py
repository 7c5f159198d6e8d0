"""Whether the client of a request still waits for the response. WSGI tells a view only when it writes."""

import select
import socket
from collections.abc import Callable

from flask import request

from agents.forwarding import ClientGone


def client_required() -> Callable[[], None]:
    """A function that raises ClientGone once the client of the present request has ended its connection."""
    connection: socket.socket | None = request.environ.get("gunicorn.socket")

    def require_client() -> None:
        if connection is None:
            return
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        try:
            is_gone = poll.poll(0) and connection.recv(1, socket.MSG_PEEK) == b""
        except ConnectionError:
            is_gone = True
        except (ValueError, OSError):  # a connection with TLS does not tell
            return
        if is_gone:
            raise ClientGone("The client has ended its connection")

    return require_client
