"""A program that tests start in a sandbox: it serves at a free port of loopback, byte by byte as a test needs it."""

import base64
import hashlib
import json
import socket
import threading

MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
COOKIES = ("a=1; Domain=preview.localhost; Path=/", "agent_preview=mine", "b=2")


def head_of(file):
    method, path, _ = file.readline().decode().split()
    headers = {}
    while line := file.readline().decode().strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return method, path, headers


def body_of(file, headers):
    """The number of bytes."""
    if "chunked" not in headers.get("transfer-encoding", ""):
        return len(file.read(int(headers.get("content-length", 0))))
    number = 0
    while size := int(file.readline(), 16):
        number += len(file.read(size))
        file.readline()
    return number


def whole(kind, body, more=""):
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{more}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def echo(connection, file, headers):
    digest = hashlib.sha1((headers["sec-websocket-key"] + MAGIC).encode()).digest()
    accept = base64.b64encode(digest).decode()
    head = f"HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    connection.sendall(head.encode() + b"\x81\x05first")
    while len(begin := file.read(2)) == 2 and begin[0] & 15 == 1:
        mask = file.read(4)
        said = bytes(byte ^ mask[at % 4] for at, byte in enumerate(file.read(begin[1] & 127)))
        connection.sendall(bytes([0x81, len(said) + 5]) + b"echo " + said)


def redirect(port):
    return f"HTTP/1.1 302 Found\r\nLocation: http://localhost:{port}/page\r\nContent-Length: 0\r\n\r\n".encode()


def serve(connection):
    with connection, connection.makefile("rb") as file:
        method, path, headers = head_of(file)
        number = body_of(file, headers)
        seen = {"method": method, "path": path, "headers": headers, "bytes": number}
        cookies = "".join(f"Set-Cookie: {one}\r\n" for one in COOKIES)
        if path == "/socket":
            return echo(connection, file, headers)
        connection.sendall(
            {
                "/stream": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"9\r\ndata: 0\n\n\r\n9\r\ndata: 1\n\n\r\n0\r\n\r\n",
                "/cut": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
                "/junk": b"\0\1\2\r\n\r\n",
                "/cookies": whole("text/plain", "set", cookies),
                "/away": redirect(connection.getsockname()[1]),
                "/page": whole("text/html", "<h1>shown</h1>"),
            }.get(path)
            or whole("application/json", json.dumps(seen))
        )


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0))
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
