"""The two pages for people: the console at `/console/`, and the OpenAPI document at `/docs`. Source: docs/console.md.

The console uses only the public API. Its files are served under a common hash, `/console/HASH/…`: browsers cache them
for a year, and only request the page each time. A page of an older release gets 404 for a part that it loads later, and
asks the person to reload. Neither page loads anything from other origins.
"""

import gzip
import hashlib
import json
import posixpath
import re
from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import NamedTuple

from flask import Blueprint, Response, current_app, request
from werkzeug.exceptions import NotFound

from blueprints import current_server
from blueprints.api import needs

console = Blueprint("console", __name__)

_CONSOLE = Path(__file__).parent.parent / "console"

#: Files in `vendor` that only the other page uses.
_FOR_DOCS = ("vendor/page/", "vendor/swagger-ui/")

_TYPES = {
    **{".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"},
    **{".png": "image/png", ".webmanifest": "application/manifest+json"},
}

#: Files beside the page: the worker that shows notifications, and the manifest, which is a template.
_WORKER, _MANIFEST = "worker.js", "manifest.webmanifest"

#: The page, which is a template; its first script, and the view that most people see first.
_PAGE, _MAIN, _VIEW = "index.html", "main.js", "views/inbox.js"

#: Names of modules that the scripts import.
_IMPORTS = {
    "preact": "vendor/preact/preact.mjs",
    "preact/hooks": "vendor/preact/hooks.mjs",
    "htm": "vendor/htm/htm.module.js",
}

#: Static imports of a script. `import()` loads later.
_IMPORT = re.compile(r"""^(?:import|export)\b(?:[^;'"(]*\bfrom)?\s*["']([^"']+)["']""", re.MULTILINE)

#: Comments on their own lines.
_COMMENT = re.compile(r"^[ \t]*(?://.*|/\*(?:[^*]|\*(?!/))*\*/[ \t]*)$", re.MULTILINE)

_POLICY = (
    "default-src 'self'; script-src 'self' 'sha256-{digest}'; img-src 'self' data:; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types agent-server-worker"
)

#: The worker shows notifications and sends decisions. It loads nothing.
_WORKER_POLICY = "default-src 'none'; connect-src 'self'"

_YEAR = "public, max-age=31536000, immutable"


#: The style sheet draws its arrows as data: images.
_DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class File(NamedTuple):
    """A file as it is sent."""

    raw: bytes
    zipped: bytes
    mimetype: str


class ConsoleFiles:
    """All files of the console, read once: the page, and the other files by their path under the hash."""

    def __init__(self) -> None:
        found = {
            path.relative_to(_CONSOLE).as_posix(): path
            for path in sorted(_CONSOLE.rglob("*"))
            if path.suffix in _TYPES and not path.relative_to(_CONSOLE).as_posix().startswith(_FOR_DOCS)
        }
        self._files = {name: _file(_sendable(name, path), _TYPES[path.suffix]) for name, path in found.items()}
        self.worker, manifest = self._files.pop(_WORKER), self._files.pop(_MANIFEST)
        template = (_CONSOLE / _PAGE).read_text()
        digest = hashlib.sha256(template.encode() + manifest.raw)
        for name, file in self._files.items():
            digest.update(f"\n{name} {hashlib.sha256(file.raw).hexdigest()}".encode())
        self.release = digest.hexdigest()[:16]
        root = f"./{self.release}/"  # relative to the page, because a proxy may serve it under any path
        imports = json.dumps({"imports": {name: root + path for name, path in _IMPORTS.items()}})
        page = template.replace("{{root}}", root).replace("{{imports}}", imports)
        self.manifest = _file(manifest.raw.replace(b"{{root}}", root.encode()), manifest.mimetype)
        preloads = "".join(f'<link rel="modulepreload" href="{root}{name}">' for name in self.first_modules())
        self.page = _file(page.replace("{{preloads}}", preloads).encode(), "text/html")
        self.policy = _POLICY.format(digest=b64encode(hashlib.sha256(imports.encode()).digest()).decode())

    def get(self, name: str) -> File:
        """Return a file by its path. Raises NotFound."""
        if name not in self._files:
            raise NotFound("The console has no such file")
        return self._files[name]

    def first_modules(self) -> list[str]:
        """Return the scripts that are loaded before the inbox is visible, in load order."""
        found, open_names = [_MAIN, _VIEW], [_VIEW, _MAIN]
        while open_names:
            name = open_names.pop()
            for imported in _IMPORT.findall(self._files[name].raw.decode()):
                path = _IMPORTS.get(imported) or _path(name, imported)
                if path not in found:
                    found.append(path)
                    open_names.append(path)
        return found


@cache
def console_files() -> ConsoleFiles:
    """Return the files of the console. A process reads and compresses them once."""
    return ConsoleFiles()


def _sendable(name: str, path: Path) -> bytes:
    """Return the bytes to send. Our scripts and style sheets lose their comments, a fifth of the first load.

    Lines are kept, so that an error has the line number of the source.
    """
    if name.startswith("vendor/") or path.suffix not in (".js", ".css"):
        return path.read_bytes()
    return _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), path.read_text()).encode()


def _path(name: str, imported: str) -> str:
    """Return the path of a module that the script `name` imports."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), imported))


def _file(raw: bytes, mimetype: str) -> File:
    charset = "" if mimetype == "image/png" or ";" in mimetype else "; charset=utf-8"
    return File(raw, gzip.compress(raw, mtime=0), mimetype + charset)


@console.get("/console/", strict_slashes=False)
@needs("open")
def show_console() -> Response:
    """Show the page. It needs no key, because it contains no data."""
    files = current_server().console
    response = _sent(files.page, "no-cache")
    response.headers["Content-Security-Policy"] = files.policy
    return response


@console.get(f"/console/{_WORKER}")
@needs("open")
def show_worker() -> Response:
    """Show the service worker, which notifies while no page is open."""
    response = _sent(current_server().console.worker, "no-cache")
    response.headers["Content-Security-Policy"] = _WORKER_POLICY
    return response


@console.get(f"/console/{_MANIFEST}")
@needs("open")
def show_manifest() -> Response:
    """Show the manifest with which a phone installs the console."""
    return _sent(current_server().console.manifest, "no-cache")


@console.get("/console/<release>/<path:name>")
@needs("open")
def show_console_file(release: str, name: str) -> Response:
    """Show a file of the page. Files of an earlier release are gone."""
    files = current_server().console
    if release != files.release:
        raise NotFound("The console was updated: load the page again")
    return _sent(files.get(name), _YEAR)


def _sent(file: File, kept: str) -> Response:
    """Send a file, compressed if the client accepts that; 304 if the client has it."""
    is_zipped = request.accept_encodings["gzip"] > 0
    response = Response(file.zipped if is_zipped else file.raw, content_type=file.mimetype)
    response.headers["Cache-Control"] = kept
    response.vary.add("Accept-Encoding")
    if is_zipped:
        response.headers["Content-Encoding"] = "gzip"
    response.add_etag()
    response.make_conditional(request)
    return response


docs_page = Blueprint("docs", __name__)


@docs_page.get("/docs")
@needs("open")
def show_docs() -> Response:
    """Show the page. It needs no key, because it contains no data."""
    response = current_app.send_static_file("page/docs.html")
    response.headers["Content-Security-Policy"] = _DOCS_POLICY
    return response
