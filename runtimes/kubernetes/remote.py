"""Commands in pods, over a WebSocket with the channels of v5.channel.k8s.io.

A message begins with its channel: 0 standard input, 1 standard output, 2 standard error, 3 how the command ended, 255
the end of the channel that follows. Memory is bounded by one message. Needs Kubernetes 1.30 or newer.
"""

import json
from collections.abc import Generator, Iterable
from importlib import import_module
from typing import Any
from urllib.parse import urlencode

from runtimes import RuntimeFailure
from runtimes.kubernetes.connection import Connection

_STDIN, _STDOUT, _STDERR, _ENDED, _CLOSE = 0, 1, 2, 3, 255

#: seconds in which the pod must take or send something
_TIMEOUT = 60.0

#: most bytes of what a command says about its failure
_MOST_WORDS = 2000


def output_of(
    connection: Connection, pod: str, command: Iterable[str], stdin: Iterable[bytes] | None = None
) -> Generator[bytes]:
    """What a command in a pod prints, in pieces. Standard input is sent whole before anything is read.

    Raises RuntimeFailure, also after the last piece, of a command that fails; and what `stdin` raises.
    """
    words = [*(("command", word) for word in command), ("stdout", "true"), ("stderr", "true")]
    if stdin is not None:
        words.append(("stdin", "true"))
    path = f"/api/v1/namespaces/{connection.namespace}/pods/{pod}/exec?{urlencode(words)}"
    socket = _opened(connection, path)
    try:
        if stdin is not None:
            _send(socket, stdin)
        yield from _received(socket)
    except (OSError, _socket_error()) as error:
        raise RuntimeFailure(f"the connection with the pod broke off: {error}") from error
    finally:
        socket.shutdown()  # at once: a close would wait for the other side's


def _socket_error() -> type[Exception]:
    error: type[Exception] = import_module("websocket").WebSocketException
    return error


def _opened(connection: Connection, path: str) -> Any:
    client = import_module("kubernetes.stream.ws_client")
    settings = connection.core.api_client.configuration
    headers = {"sec-websocket-protocol": client.V5_CHANNEL_PROTOCOL}
    for setting in settings.auth_settings().values():
        headers[setting["key"]] = setting["value"]
    url = client.get_websocket_url(f"{connection.host}{path}")
    try:
        socket = client.create_websocket(settings, url, headers)
    except (OSError, _socket_error()) as error:
        raise RuntimeFailure(f"no command can be run in the pod: {error}") from error
    socket.settimeout(_TIMEOUT)
    return socket


def _send(socket: Any, chunks: Iterable[bytes]) -> None:
    for chunk in chunks:
        try:
            socket.send_binary(bytes([_STDIN]) + chunk)
        except (OSError, _socket_error()):
            return  # it reads no more: what it says of that is read next
    socket.send_binary(bytes([_CLOSE, _STDIN]))


def _received(socket: Any) -> Generator[bytes]:
    words = b""
    while True:
        data = socket.recv()
        if isinstance(data, str):
            data = data.encode()
        if not data:
            raise RuntimeFailure("the connection with the pod broke off before its command had ended")
        channel, content = data[0], data[1:]
        if channel == _STDOUT:
            yield content
        elif channel == _STDERR:
            words = (words + content)[-_MOST_WORDS:]
        elif channel == _ENDED:
            ended = json.loads(content)
            if ended.get("status") != "Success":
                said = words.decode(errors="replace").strip() or ended.get("message") or "it said nothing"
                raise RuntimeFailure(f"its command failed: {said}")
            return
