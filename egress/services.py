"""Rewriting of a sandbox's requests: the target, and the headers that are kept, dropped and added.

The proxy writes every request anew. It drops hop-by-hop headers and the sandbox's own credentials, and adds the
credentials of the service.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from settings.egress import Service

Headers = list[tuple[bytes, bytes]]

#: Characters of a path. Source: RFC 3986, 3.3
_PATH = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*")
_QUERY = re.compile(r"[!-~]*")

#: Characters at which some servers end a path segment, and segments that some servers read as `.` or `..`. Both apply
#: to the decoded path.
_ENDS_PART, _DOTS = re.compile(r"[;?#]"), re.compile(r"\s*\.\s*(?:\.\s*)?")

#: Maximum number of times that a path is decoded. A path that would still change is refused.
_MOST_DECODED = 3

#: Forwarded methods: RFC 9110 and WebDAV. TRACE is left out, because its response would show the service's credentials.
METHODS = (
    *("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
    *("PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH"),
)

#: Hop-by-hop headers. Source: RFC 9110, 7.6.1
_OF_CONNECTION = {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect", b"host"}
_OF_CONNECTION |= {b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"http2-settings"}

#: Headers that a sandbox cannot send to a service: credentials, overrides of method, path or host, and headers that the
#: service accepts only from a trusted proxy.
_NOT_FROM_SANDBOX = {
    *(b"authorization", b"x-api-key", b"api-key", b"cookie", b"x-goog-api-key"),
    *(b"x-http-method-override", b"x-http-method", b"x-method-override"),
    *(b"x-original-url", b"x-rewrite-url", b"x-original-uri", b"x-original-host", b"x-host"),
    *(b"forwarded", b"x-real-ip", b"x-client-ip", b"true-client-ip"),
}
_OF_PROXIES = b"x-forwarded-"

#: Headers of Swift, S3, Azure and Google Cloud Storage in which a request names a second resource, such as a copy's
#: source.
_SECOND_RESOURCE = {
    *(b"x-copy-from", b"x-copy-from-account", b"destination-account", b"x-object-manifest", b"x-symlink-target"),
    *(b"x-amz-copy-source", b"x-ms-copy-source", b"x-ms-rename-source", b"x-goog-copy-source"),
}


class Wrong(ValueError):
    """A malformed or ambiguous request. The message tells the sandbox why."""


@dataclass(frozen=True)
class Base:
    """The parts of a service's base URL."""

    scheme: str
    host: str
    port: int
    path: str  #: empty, or begins with a slash and does not end with one

    @classmethod
    def of(cls, service: Service) -> "Base":
        url = urlsplit(service.base_url)
        port = url.port or (443 if url.scheme == "https" else 80)
        return cls(url.scheme, url.hostname or "", port, url.path.rstrip("/"))

    @property
    def authority(self) -> bytes:
        """Return the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host.encode() if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}".encode()


def split_target(target: str) -> tuple[str, str]:
    """Split `/NAME/…` into the name of the service and the rest with its query."""
    rest = target.removeprefix("/")
    end = next((position for position, character in enumerate(rest) if character in "/?"), len(rest))
    return rest[:end], rest[end:]


def below(base: str, rest: str) -> str:
    """Append the rest of a request's target to the path of a base URL. Raises Wrong if it could leave the base.

    Servers may decode a path several times, read a backslash as a slash, normalize Unicode, strip spaces, or drop the
    text after `;`, `?` or `#`. None of these readings may yield a segment `.` or `..`. Invalid UTF-8 is refused,
    because some servers accept overlong encodings of a dot or a slash.
    """
    path, mark, query = rest.partition("?")
    if not _PATH.fullmatch(path) or not _QUERY.fullmatch(query):
        raise Wrong("the path has characters that are not allowed in a URL: percent-encode them")
    text = path
    for _ in range(_MOST_DECODED):
        parts = [_ENDS_PART.split(part)[0] for part in re.split(r"[/\\]", unicodedata.normalize("NFKC", text))]
        if any(_DOTS.fullmatch(part) for part in parts) or re.search(r"[\x00-\x1f\x7f]", text):
            raise Wrong("the path leaves the service's base URL")
        try:
            decoded = unquote(text, errors="strict")
        except UnicodeDecodeError:
            raise Wrong("the decoded path is not UTF-8") from None
        if decoded == text:
            return f"{base}{path}{mark}{query}" if base or path else f"/{mark}{query}"
        text = decoded
    raise Wrong("the path is encoded more than twice")


def within(service: Service, base: Base, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Rewrite the `Destination` header of WebDAV (RFC 4918, 10.3) to the base URL.

    Raises Wrong for a header that could name a resource outside of the base URL.
    """
    found = []
    for name, value in headers:
        if (folded := _folded(name)) in _SECOND_RESOURCE:
            raise Wrong(f"{folded.decode()} names a second resource, which the proxy cannot check")
        found.append((name, _destination(service, base, value) if folded == b"destination" else value))
    return found


def _destination(service: Service, base: Base, value: bytes) -> bytes:
    """Return a `Destination` as a URL of the service. It lies below the base URL or `{EGRESS}/NAME`. Raises Wrong."""
    address = _location(service, base, value).decode("latin-1")
    path = re.sub(r"\Ahttps?://[^/?#\\]*", "", address, flags=re.IGNORECASE)
    name, rest = split_target(path)
    if not path.startswith("/") or name != service.name:
        raise Wrong("Destination lies outside of the service's base URL")
    return f"{base.scheme}://{base.authority.decode()}{below(base.path, rest)}".encode()


def kept(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Drop hop-by-hop headers, and the headers that `Connection` names. Raises Wrong.

    Names are compared as in CGI, where `_` and `-` are equal.
    """
    lowered = [(name.lower(), value) for name, value in headers]
    framing = [name for name, _ in lowered if name in (b"content-length", b"transfer-encoding")]
    if len(framing) > 1:
        raise Wrong("the request has more than one Content-Length or Transfer-Encoding")
    named = {_folded(part.strip()) for name, value in lowered if name == b"connection" for part in value.split(b",")}
    dropped = _OF_CONNECTION | (named - {b"content-length"})
    return [
        (name, value)
        for name, value in lowered
        if _folded(name) not in dropped and (name == b"content-length" or _folded(name) != b"content-length")
    ]


def _folded(name: bytes) -> bytes:
    return name.lower().replace(b"_", b"-")


def toward(service: Service, method: bytes, headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Build the headers of a request to a service, with the service's credentials. Raises Wrong.

    Requests to a model ask for no compression, because the proxy reads the usage in the response. A GET, HEAD or
    OPTIONS with a body is refused: a server that does not read the body would parse it as the next request, and the
    proxy would not have checked that request.
    """
    framing = [value for name, value in headers if name.lower() in (b"content-length", b"transfer-encoding")]
    if method in (b"GET", b"HEAD", b"OPTIONS") and any(value.strip(b"0 ") for value in framing):
        raise Wrong(f"{method.decode()} to a service has no body: send it with POST")
    own = [(name.lower().encode(), value.encode()) for name, value in service.headers.items()]
    if service.is_model:
        own.append((b"accept-encoding", b"identity"))
    dropped = _NOT_FROM_SANDBOX | {_folded(name) for name, _ in own}
    passed = [(_folded(name), name, value) for name, value in kept(headers)]
    return [
        (name, value) for folded, name, value in passed if folded not in dropped and not folded.startswith(_OF_PROXIES)
    ] + own


def returned(service: Service, base: Base, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Build the headers of a service's response. A redirect below the base URL is mapped back to the service."""
    found = []
    for name, value in kept_of_response(headers):
        if name == b"location":
            value = _location(service, base, value)
        found.append((name, value))
    return found


def kept_of_response(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers of a response that are forwarded."""
    lowered = [(name.lower(), value) for name, value in headers]
    return [(name, value) for name, value in lowered if name not in _OF_CONNECTION]


def _location(service: Service, base: Base, value: bytes) -> bytes:
    text = value.decode("latin-1")
    rest = text.removeprefix(f"{base.scheme}://{base.authority.decode()}")
    if rest == text and not (text.startswith("/") and not text.startswith("//")):
        return value
    if rest == base.path or rest.startswith((f"{base.path}/", f"{base.path}?")):
        return f"/{service.name}{rest.removeprefix(base.path)}".encode("latin-1")
    if rest != text:
        return value
    return f"{base.scheme}://{base.authority.decode()}{text}".encode("latin-1")  # a path outside of the base URL
