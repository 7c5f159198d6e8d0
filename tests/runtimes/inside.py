"""A program that a sandbox runs: it tries what TRIES in its environment says, prints the results, and serves."""

import ctypes
import http.client
import json
import os
import socket
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


def read(path: str) -> str:
    return Path(path).read_bytes().decode(errors="replace")


def write(path: str) -> str:
    Path(path).write_text("written by the sandbox")
    return "written"


def entries(path: str) -> str:
    return " ".join(sorted(each.name for each in Path(path).iterdir()))


def connect(host: str, port: int) -> str:
    """The first bytes that a TCP server sends: pasta accepts before it knows whether anyone is there."""
    with socket.create_connection((host, port), 5) as client:
        return client.recv(100).decode() or "nothing"


def multipath(host: str, port: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as client:
        client.settimeout(5)
        client.connect((host, port))
        return client.recv(100).decode()


def fast_open(host: str, port: int) -> str:
    with socket.socket() as client:
        client.settimeout(5)
        client.sendto(b"x", 0x20000000, (host, port))
        return client.recv(100).decode()


def unix(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        client.connect(path.replace("@", "\0", 1) if path.startswith("@") else path)
        return client.recv(100).decode()


def datagram(path: str) -> str:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        one.sendto(b"planted", path)
        return "sent"


def pair() -> str:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(b"bytes")
        return other.recv(10).decode()


def watch(path: str) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.inotify_add_watch(libc.inotify_init(), path.encode(), 0x100) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "watched"


def of_libc(name: str, *arguments: int | str) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    given = [one.encode() if isinstance(one, str) else one for one in arguments]
    if (result := libc[name](*given)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return str(result)


def change_mode(path: str, mode: int) -> str:
    Path(path).touch()
    Path(path).chmod(mode)
    return oct(Path(path).stat().st_mode & 0o7777)


def make(path: str, mode: int, flags: int = os.O_CREAT | os.O_EXCL) -> str:
    os.close(os.open(path, flags | os.O_WRONLY, mode))
    return "made"


def make_node(path: str, mode: int) -> str:
    os.mknod(path, 0o100000 | mode)
    return "made"


def user() -> str:
    return f"{os.getuid()} {os.getgid()} {os.getgroups()}"


def size(path: str) -> str:
    return str(Path(path).stat().st_size)


def set_mode(path: str, mode: int) -> str:
    Path(path).chmod(mode)
    return "set"


def set_time(path: str) -> str:
    os.utime(path)
    return "set"


def set_priority(pid: int) -> str:
    os.setpriority(os.PRIO_PROCESS, pid, 19)
    return "set"


def attribute(path: str) -> str:
    Path(path).touch()
    os.setxattr(path, "user.planted", b"1")
    return "set"


def bind(host: str, port: int) -> str:
    with socket.create_server((host, port)):
        return "bound"


def listen() -> str:
    with socket.socket() as listener:
        listener.listen()  # unbound: the kernel chooses the port
        return str(listener.getsockname()[1])


def terminal(path: str) -> str:
    file = os.open(path, os.O_RDWR | os.O_NOCTTY)
    os.write(file, b"planted")
    return "written"


def own_terminal() -> str:
    return os.ttyname(os.openpty()[1])


def given_terminals() -> str:
    """The names of the terminals that the launcher gave, each opened by its name."""
    slaves = [int(pair.split(":")[1]) for pair in os.environ["AGENT_TERMINALS"].split()]
    names = [os.ttyname(slave) for slave in slaves]
    for name in names:
        os.close(os.open(name, os.O_RDWR | os.O_NOCTTY))
    return " ".join(names)


def kill(pid: int) -> str:
    os.kill(pid, 0)
    return "signalled"


def post(url: str) -> str:
    request = urllib.request.Request(url, b"[]", {"Authorization": "Bearer planted-hook-key"}, method="POST")
    with urllib.request.urlopen(request, timeout=5) as response:
        return str(response.status)


def get(url: str) -> str:
    host = url.split("/")[2]
    connection = http.client.HTTPConnection(host, timeout=5)
    connection.request("GET", "/" + url.split("/", 3)[3])
    return str(connection.getresponse().status)


def way_out(target: str) -> str:
    """The response to a request that goes the way out by name."""
    connection = http.client.HTTPConnection(os.environ["EGRESS"].removeprefix("http://"), timeout=5)
    connection.request("GET", target)
    response = connection.getresponse()
    return f"{response.status} {response.read().decode()}"


def take_port_of_way_out() -> str:
    with socket.create_server(("127.0.0.1", int(os.environ["EGRESS"].rpartition(":")[2]))):
        return "taken"


def udp() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(b"x", ("203.0.113.10", 53))
        return "sent"


def raw() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, 1):
        return "made"


def call(number: int, *arguments: int) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, *map(ctypes.c_long, arguments)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "allowed"


def environment(name: str) -> str:
    return os.environ.get(name, "")


class InsideAgent(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"the agent")

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    server = HTTPServer(("127.0.0.1", int(os.environ["PORT"])), InsideAgent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, verb, *arguments in json.loads(os.environ["TRIES"]):
        filled = [os.environ["HOOKS"] + word[1:] if str(word).startswith("^") else word for word in arguments]
        try:
            outcome = f"reached: {globals()[verb](*filled)}"
        except Exception as error:
            outcome = f"refused: {error}"
        print(json.dumps([name, outcome, os.environ["RUN"]]), flush=True)
    print(json.dumps(["done", "", os.environ["RUN"]]), flush=True)
    time.sleep(600)


if __name__ == "__main__":
    sys.exit(main())
