"""Commands in pods: a WebSocket with the channels of v5.channel.k8s.io.

Each message begins with its channel: 0 standard input, 1 standard output, 2 standard error, 3 how it ended, 255 the end
of the channel that follows.
"""

import contextlib
import json
import subprocess
import threading
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Ping, Pong, RejectConnection, Request
from wsproto.utilities import LocalProtocolError

from tests.kubernetes_api.node import KubernetesNode
from tests.kubernetes_api.objects import ApiError, Object

PROTOCOL = "v5.channel.k8s.io"


def attach(handler: Any, node: KubernetesNode, pod: Object, command: list[str]) -> None:
    """Run a command in a pod for a request that asks for an upgrade. handler: of the request."""
    if pod["status"]["phase"] != "Running":
        raise ApiError(400, "BadRequest", f"pod {pod['metadata']['name']} is not running")
    socket = handler.connection
    connection = WSConnection(ConnectionType.SERVER)
    head = f"{handler.command} {handler.path} HTTP/1.1\r\n{handler.headers}".replace("\n", "\r\n")
    connection.receive_data(head.replace("\r\r\n", "\r\n").encode())
    [request] = connection.events()
    assert isinstance(request, Request)
    sending = threading.Lock()

    def send(event: Event) -> None:
        with sending, contextlib.suppress(OSError, LocalProtocolError):  # the client has gone
            socket.sendall(connection.send(event))

    handler.close_connection = True
    if PROTOCOL not in request.subprotocols:
        send(RejectConnection(status_code=403))
        return
    send(AcceptConnection(subprotocol=PROTOCOL))
    words = [node.translated(pod, word) for word in command]
    [container], pipe = pod["spec"]["containers"], subprocess.PIPE
    cwd = node.translated(pod, container.get("workingDir", "/"))
    try:
        started = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=node.environment(pod), cwd=cwd)
    except OSError as error:
        ended: Object = {"kind": "Status", "status": "Failure", "reason": "InternalError", "message": str(error)}
        send(BytesMessage(data=b"\3" + json.dumps(ended).encode()))
        send(CloseConnection(code=1000))
        return
    with started as process:
        readers = [
            threading.Thread(target=_forward, args=(stream, channel, send), daemon=True)
            for stream, channel in ((process.stdout, 1), (process.stderr, 2))
        ]
        feeder = threading.Thread(target=_feed, args=(socket, connection, process, send, sending), daemon=True)
        for thread in (*readers, feeder):
            thread.start()
        code = process.wait()
        for thread in readers:
            thread.join()
        ended = {"kind": "Status", "status": "Success"}
        if code:
            causes = [{"reason": "ExitCode", "message": str(code)}]
            ended = {"kind": "Status", "status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
        send(BytesMessage(data=b"\3" + json.dumps(ended).encode()))
        send(CloseConnection(code=1000))
        feeder.join()


def _forward(stream: Any, channel: int, send: Any) -> None:
    while data := stream.read1(65536):
        send(BytesMessage(data=bytes([channel]) + data))


def _feed(
    socket: Any, connection: WSConnection, process: "subprocess.Popen[bytes]", send: Any, sending: threading.Lock
) -> None:
    """What the client sends, until it closes."""
    message = b""
    with contextlib.suppress(OSError):
        while connection.state is not ConnectionState.CLOSED and (data := socket.recv(65536)):
            with sending:
                connection.receive_data(data)
                events = list(connection.events())
            for event in events:
                if isinstance(event, Ping):
                    send(Pong(payload=event.payload))
                if not isinstance(event, BytesMessage):
                    continue
                message += event.data
                if event.message_finished:
                    _take(message, process)
                    message = b""
    with contextlib.suppress(OSError):
        process.stdin.close()
    process.kill() if process.poll() is None else None


def _take(message: bytes, process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(OSError, ValueError):  # it has ended, and reads no more
        if message[:1] == b"\0":
            process.stdin.write(message[1:])
            process.stdin.flush()
        elif message == b"\xff\0":
            process.stdin.close()
