"""Opens a pull request by the API of a repository's host: GitHub, GitLab, Gitea or Forgejo.

A host has an API if the spec names a service with its base URL and a credential in the headers. The server calls it,
not the sandbox, so the response is authentic.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import httpx

from agents.pushes import ConversationRemote, RequestedPush
from core.cuts import beginning
from core.refused import RefusalKind, Refused
from core.visible import visible
from net.connections import deadline
from net.transport import Transport
from settings.egress import Service

#: Timeout of a call in seconds, and maximum size of a response in bytes.
_CALL_SECONDS, _MOST_BYTES = 20.0, 1 << 20

#: Maximum number of characters of a host's text in a refusal.
_MOST_SAID = 300

_GITHUB, _GITLAB, _GITEA = "GitHub", "GitLab", "Gitea"

#: The APIs by the end of their base URLs.
_KINDS = {"/api/v3": _GITHUB, "/api/v4": _GITLAB, "/api/v1": _GITEA}

#: Advice to the operator about the spec.
ADVICE = (
    "Its operator names the host's API as [[spec.service]]: base_url https://api.github.com, or one that ends with "
    "/api/v3 (GitHub Enterprise), /api/v4 (GitLab) or /api/v1 (Gitea, Forgejo)"
)


#: Path of a repository at its host. No segment consists of dots: the sandbox names the remote, and a server could
#: resolve dots to another path of the API.
_REPOSITORY = re.compile(r"(?!\.+/)[\w.-]+(?:/(?!\.+(?:/|$))[\w.-]+)+", re.ASCII)


class NoApi(Refused):
    """The spec names no API of the repository's host, so no pull request can be opened."""

    kind = RefusalKind.CONFLICT


class PullRequestFailed(Refused):
    """The host opened no pull request. The branch is pushed."""

    kind = RefusalKind.BAD_AGENT


class HostApi(NamedTuple):
    """The API of a host."""

    kind: str
    service: Service


def api_of(remote: ConversationRemote, services: Iterable[Service], spec_id: str) -> HostApi:
    """Return the API of a remote's host. Raises NoApi."""
    if not _REPOSITORY.fullmatch(remote.repository):
        raise NoApi(f"{remote.url} names no repository such as owner/name, so no pull request can be opened there")
    for service in services:
        base = urlsplit(service.base_url)
        if base.netloc == "api.github.com" and remote.host == "github.com":
            return HostApi(_GITHUB, service)
        for end, kind in _KINDS.items():
            if base.netloc == remote.host and base.path.endswith(end):
                return HostApi(kind, service)
    raise NoApi(f"The spec {spec_id} has no credential for pull requests at {remote.host}. {ADVICE}")


def open_request(api: HostApi, remote: ConversationRemote, wanted: RequestedPush, base: str) -> str:
    """Open a pull request for a pushed branch, unless one is open. Return its URL. Raises PullRequestFailed."""
    owner = remote.repository.partition("/")[0]
    words = {"title": wanted.title}
    if api.kind == _GITLAB:
        place = f"/projects/{quote(remote.repository, safe='')}/merge_requests"
        known = {"source_branch": wanted.branch, "target_branch": base, "state": "opened"}
        body = words | {"source_branch": wanted.branch, "target_branch": base, "description": wanted.description}
        return _opened(api, place, known, body, "web_url")
    place = f"/repos/{quote(remote.repository)}/pulls"
    known = {"head": f"{owner}:{wanted.branch}", "base": base, "state": "open"}
    body = words | {"head": wanted.branch, "base": base, "body": wanted.description}
    return _opened(api, place, known, body, "html_url")


def _opened(api: HostApi, place: str, known: Mapping[str, str], body: Mapping[str, str], member: str) -> str:
    """Return the URL of a branch's open pull request, or of a new one."""
    status, found = _call(api, "GET", f"{place}?{urlencode(known)}")
    branch = body.get("head") or body.get("source_branch")
    for one in found if status == 200 and isinstance(found, list) else []:
        if not isinstance(one, dict):
            continue
        head = one.get("head")
        if branch == (head.get("ref") if isinstance(head, dict) else one.get("source_branch")):
            return _address(one, member)  # Gitea ignores the filter and lists all open requests
    status, made = _call(api, "POST", place, body)
    if status not in (200, 201) or not isinstance(made, dict):
        raise PullRequestFailed(f"The branch is pushed. {api.kind} opened no pull request: {_reason(status, made)}")
    return _address(made, member)


def _address(found: Mapping[str, Any], member: str) -> str:
    address = found.get(member)
    if not isinstance(address, str) or urlsplit(address).scheme not in ("https", "http"):
        raise PullRequestFailed("The branch is pushed. The host names no address of its pull request")
    return beginning(address, 2000)


def _reason(status: int, said: Any) -> str:
    """Return a host's text of a refusal."""
    messages: list[Any] = []
    if isinstance(said, dict):
        errors = said.get("errors")
        messages = [said.get("message"), *(errors if isinstance(errors, list) else [])]
    texts = [one.get("message") if isinstance(one, dict) else one for one in messages]
    told = ". ".join(str(one).rstrip(".") for one in texts if one)
    return f"{status}, {beginning(visible(told), _MOST_SAID)}" if told else f"it answered {status}"


@cache
def _transport() -> Transport:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return Transport(limits, ssl_context=httpx.create_ssl_context())  # with SSL_CERT_FILE and SSL_CERT_DIR


def _call(api: HostApi, method: str, place: str, body: Mapping[str, str] | None = None) -> tuple[int, Any]:
    """Return the status of a response and its JSON; None if it has none. Raises PullRequestFailed."""
    headers = {"accept": "application/json", "user-agent": "agent-server", "accept-encoding": "identity"}
    headers |= {name.lower(): value for name, value in api.service.headers.items()}
    content = None if body is None else json.dumps(body).encode()
    if content is not None:
        headers["content-type"] = "application/json"
    request = httpx.Request(
        method,
        api.service.base_url + place,
        headers=headers,
        content=content,
        extensions={"timeout": httpx.Timeout(_CALL_SECONDS).as_dict()},
    )
    try:
        with deadline(_CALL_SECONDS):
            response, received = _transport().handle_request(request), b""
            try:
                for chunk in response.iter_raw():
                    received += chunk
                    if len(received) > _MOST_BYTES:
                        raise PullRequestFailed(f"The branch is pushed. {api.kind} sent more than {_MOST_BYTES} bytes")
            finally:
                response.close()
    except httpx.HTTPError as error:
        raise PullRequestFailed(f"The branch is pushed. {api.kind} is not reached: {type(error).__name__}") from None
    try:
        return response.status_code, json.loads(received)
    except ValueError:
        return response.status_code, None
