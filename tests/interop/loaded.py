"""The SDK, loaded once: a process that forks a client of it for each caller, as loading takes most of a client's time.

    .venv-openhands/bin/python tests/interop/loaded.py SOCKET

A caller connects to the Unix socket and sends one JSON object: `argv`, of which the first is a program of this folder,
and `env`; with it stdin, stdout and stderr of the client as file descriptors. It receives a line with the id of the
client's process, and at its end a line with its exit status. Of tools nothing is loaded: a client does that.
"""

import json
import os
import runpy
import signal
import socket
import sys
import threading

import openhands.sdk  # noqa: F401 - what every client loads

#: most bytes of what a caller sends
MOST_BYTES = 64 * 1024


def attend(connection: socket.socket) -> None:
    """Run one client in a process of its own, and tell its caller how it ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked, streams, _, _ = socket.recv_fds(connection, MOST_BYTES, 3)
    client = os.fork()
    if client == 0:
        connection.close()
        play(streams, **json.loads(asked))
    for stream in streams:
        os.close(stream)
    connection.sendall(f"{client}\n".encode())
    _, status = os.waitpid(client, 0)
    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def play(streams: list[int], argv: list[str], env: dict[str, str]) -> None:
    """Become that program. Never returns."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = argv
    runpy.run_path(argv[0], run_name="__main__")
    sys.exit()  # from here on as any interpreter ends: its executors, then its threads, and what is registered


def main(path: str) -> None:
    assert threading.active_count() == 1, "a fork has none of the other threads"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps those who attend
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                attend(connection)
                os._exit(0)
            connection.close()


if __name__ == "__main__":
    main(sys.argv[1])
