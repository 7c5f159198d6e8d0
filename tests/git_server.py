"""A Git server on loopback, by `git http-backend`, with a repository."""

import os
import subprocess
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from tests.servers import program

#: who commits
ADA = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")


class Git(BaseHTTPRequestHandler):
    """Serves the repositories of a folder; `credential`: the header without which it serves nothing."""

    folder: ClassVar[Path]
    credential: ClassVar[str] = ""

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self.body())

    def body(self) -> bytes:
        """The body of the request, which may come in chunks."""
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers["Content-Length"]))
        found = b""
        while size := int(self.rfile.readline(), 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def _serve(self, body: bytes) -> None:
        if self.credential and self.headers.get("Authorization") != self.credential:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        address = urlsplit(self.path)
        environment = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(self.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": address.path,
            "QUERY_STRING": address.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_USER": "one with a credential",  # without a user the server takes no push
        }
        made = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=True)
        head, _, content = made.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in {**fields, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


def repository(folder: Path, name: str, **files: str) -> Path:
    """A bare repository with one commit on `main`, which has these files; a `__` in a name is its dot."""
    work = folder / f"{name.replace('/', '-')}-work"
    work.mkdir(parents=True)
    for file, text in files.items():
        (work / file.replace("__", ".")).write_text(text)
    for words in (("init", "-q", "-b", "main"), ("add", "."), (*ADA, "commit", "-q", "-m", "The first")):
        subprocess.run([program("git"), *words], cwd=work, check=True)
    bare = folder / f"{name}.git"
    subprocess.run(["git", "clone", "-q", "--bare", str(work), str(bare)], check=True)
    return bare
