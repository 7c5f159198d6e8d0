"""What a request of a sandbox becomes on its way out: its target, and the headers that are kept and put in.

Every request is written again from what was understood. Headers of one connection end here, and so does what a sandbox
shows as its own credential to a service, whose credential is put in here.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from settings.egress import Service

Headers = list[tuple[bytes, bytes]]

#: what a path is made of. Source: RFC 3986, 3.3
_PATH = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*")
_QUERY = re.compile(r"[!-~]*")

#: Where servers end a part of a decoded path, and a part that some take for `.` or `..`.
_ENDS_PART, _DOTS = re.compile(r"[;?#]"), re.compile(r"\s*\.\s*(?:\.\s*)?")

#: how often a path is decoded before it counts as one that hides something
_MOST_DECODED = 3

#: Methods that are passed on: those of RFC 9110 but TRACE, which shows a credential to its caller, and of WebDAV.
METHODS = (
    *("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
    *("PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH"),
)

#: headers of one connection. Source: RFC 9110, 7.6.1
_OF_CONNECTION = {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect", b"host"}
_OF_CONNECTION |= {b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"http2-settings"}

#: Headers that a service gets from no sandbox: credentials; what names another method, path or host than the request
#: line and `Host`; and what only a proxy that the service trusts may say.
_NOT_FROM_SANDBOX = {
    *(b"authorization", b"x-api-key", b"api-key", b"cookie", b"x-goog-api-key"),
    *(b"x-http-method-override", b"x-http-method", b"x-method-override"),
    *(b"x-original-url", b"x-rewrite-url", b"x-original-uri", b"x-original-host", b"x-host"),
    *(b"forwarded", b"x-real-ip", b"x-client-ip", b"true-client-ip"),
}
_OF_PROXIES = b"x-forwarded-"

#: Headers by which a request names a second resource of a store: in Swift, S3, Azure and Google Cloud Storage.
_SECOND_RESOURCE = {
    *(b"x-copy-from", b"x-copy-from-account", b"destination-account", b"x-object-manifest", b"x-symlink-target"),
    *(b"x-amz-copy-source", b"x-ms-copy-source", b"x-ms-rename-source", b"x-goog-copy-source"),
}


class Wrong(ValueError):
    """A request that means nothing here, or two things; the message is a sentence."""


@dataclass(frozen=True)
class Base:
    """A service's base URL in its parts."""

    scheme: str
    host: str
    port: int
    path: str  #: empty, or begins with a slash and ends with none

    @classmethod
    def of(cls, service: Service) -> "Base":
        url = urlsplit(service.base_url)
        port = url.port or (443 if url.scheme == "https" else 80)
        return cls(url.scheme, url.hostname or "", port, url.path.rstrip("/"))

    @property
    def authority(self) -> bytes:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host.encode() if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}".encode()


def split_target(target: str) -> tuple[str, str]:
    """The service's name and the rest of `/NAME/…`, with its query."""
    rest = target.removeprefix("/")
    end = next((position for position, one in enumerate(rest) if one in "/?"), len(rest))
    return rest[:end], rest[end:]


def below(base: str, rest: str) -> str:
    """The path of a base URL with the rest of a request's target. Raises Wrong if that could leave the base.

    However often a server decodes it, and whether it takes a backslash for a slash, normalizes Unicode, strips spaces,
    or drops what follows `;`, `?` or `#`, no part consists of dots. Bytes that are no UTF-8 are refused, because some
    servers read overlong forms of a dot or a slash.
    """
    path, mark, query = rest.partition("?")
    if not _PATH.fullmatch(path) or not _QUERY.fullmatch(query):
        raise Wrong("the path has characters that a URL does not have")
    text = path
    for _ in range(_MOST_DECODED):
        parts = [_ENDS_PART.split(part)[0] for part in re.split(r"[/\\]", unicodedata.normalize("NFKC", text))]
        if any(_DOTS.fullmatch(part) for part in parts) or re.search(r"[\x00-\x1f\x7f]", text):
            raise Wrong("the path leaves the service's base URL")
        try:
            decoded = unquote(text, errors="strict")
        except UnicodeDecodeError:
            raise Wrong("the path is no UTF-8 once it is decoded") from None
        if decoded == text:
            return f"{base}{path}{mark}{query}" if base or path else f"/{mark}{query}"
        text = decoded
    raise Wrong("the path is encoded more than twice")


def within(service: Service, base: Base, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers of a request, with the `Destination` of WebDAV (RFC 4918, 10.3) below the base URL.

    Raises Wrong for a header that could name a resource outside of the base URL.
    """
    found = []
    for name, value in headers:
        if (folded := _folded(name)) in _SECOND_RESOURCE:
            raise Wrong(f"{folded.decode()} names a resource that is not checked")
        found.append((name, _destination(service, base, value) if folded == b"destination" else value))
    return found


def _destination(service: Service, base: Base, value: bytes) -> bytes:
    """An address below the base URL or below `{EGRESS}/NAME`, as an address of the service. Raises Wrong."""
    address = _location(service, base, value).decode("latin-1")
    path = re.sub(r"\Ahttps?://[^/?#\\]*", "", address, flags=re.IGNORECASE)
    name, rest = split_target(path)
    if not path.startswith("/") or name != service.name:
        raise Wrong("Destination lies outside of the service's base URL")
    return f"{base.scheme}://{base.authority.decode()}{below(base.path, rest)}".encode()


def kept(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers that are passed on: none of one connection, and none that `Connection` names. Raises Wrong.

    Names are compared as CGI and its kin read them, where `_` and `-` are one.
    """
    given = [(name.lower(), value) for name, value in headers]
    framing = [name for name, _ in given if name in (b"content-length", b"transfer-encoding")]
    if len(framing) > 1:
        raise Wrong("the request says twice how long it is")
    named = {_folded(one.strip()) for name, value in given if name == b"connection" for one in value.split(b",")}
    dropped = _OF_CONNECTION | (named - {b"content-length"})
    return [
        (name, value)
        for name, value in given
        if _folded(name) not in dropped and (name == b"content-length" or _folded(name) != b"content-length")
    ]


def _folded(name: bytes) -> bytes:
    return name.lower().replace(b"_", b"-")


def toward(service: Service, method: bytes, headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    """The headers of a request to a service: its own credentials for whatever the sandbox showed. Raises Wrong.

    A model is asked for no compression: what its response says of its usage is read here. A body that servers may leave
    unread is refused: a server that goes on after it would take it for a request, which nothing here has checked.
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
    """The headers of a service's response: a redirect below its base URL stays with the service, others go by name."""
    found = []
    for name, value in kept_of_response(headers):
        if name == b"location":
            value = _location(service, base, value)
        found.append((name, value))
    return found


def kept_of_response(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers of a response that are passed on."""
    given = [(name.lower(), value) for name, value in headers]
    return [(name, value) for name, value in given if name not in _OF_CONNECTION]


def _location(service: Service, base: Base, value: bytes) -> bytes:
    text = value.decode("latin-1")
    rest = text.removeprefix(f"{base.scheme}://{base.authority.decode()}")
    if rest == text and not (text.startswith("/") and not text.startswith("//")):
        return value
    if rest == base.path or rest.startswith((f"{base.path}/", f"{base.path}?")):
        return f"/{service.name}{rest.removeprefix(base.path)}".encode("latin-1")
    if rest != text:
        return value
    return f"{base.scheme}://{base.authority.decode()}{text}".encode("latin-1")  # by name, without the credential
