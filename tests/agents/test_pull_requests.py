"""Pull requests at the three kinds of hosts, as their APIs are documented."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from agents.pull_requests import NoApi, PullRequestFailed, api_of, open_request
from agents.pushes import ConversationRemote, RequestedPush
from settings.egress import Service
from tests.quick import serve
from tests.servers import free_port

WORK = RequestedPush("agent/mend", "Mend the parser", "It read dates twice.", "ada <ada@example.org>")


class _Host(BaseHTTPRequestHandler):
    """Has the requests that were opened, and answers as it is told."""

    asked: list
    answers: list

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body) -> None:
        address = urlsplit(self.path)
        self.asked.append((self.command, address.path, parse_qs(address.query), body, self.headers["Authorization"]))
        status, content = self.answers.pop(0)
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def host():
    """A host of repositories on loopback: its name and port, what it was asked, and what it will answer."""
    kind = type("Host", (_Host,), {"asked": [], "answers": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    serve(server)
    yield f"127.0.0.1:{server.server_port}", kind.asked, kind.answers
    server.shutdown()
    server.server_close()


def remote(host: str) -> ConversationRemote:
    return ConversationRemote("app", "main", "main", f"https://{host}/team/app", "", "team/app", host)


def service(base_url: str) -> Service:
    return Service("api", base_url, {"Authorization": "Bearer secret"})


#: where each kind has its API; how it names the requests of a repository; the member with the address of one; and what
#: it calls the branch, the branch that a request is for, and the text
KINDS = {
    "GitHub": ("/api/v3", "/repos/team/app/pulls", "html_url", "head", "base", "body"),
    "Gitea": ("/api/v1", "/repos/team/app/pulls", "html_url", "head", "base", "body"),
    "GitLab": (
        *("/api/v4", "/projects/team%2Fapp/merge_requests", "web_url"),
        *("source_branch", "target_branch", "description"),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_is_opened_with_the_credential_of_the_service(host, kind):
    (name, asked, answers), (end, place, member, branch, base, text) = host, KINDS[kind]
    answers += [(200, []), (201, {member: "https://host/team/app/pull/7"})]
    api = api_of(remote(name), [service("https://model.example.org"), service(f"http://{name}{end}")], "box")

    assert api.kind == kind
    assert open_request(api, remote(name), WORK, "main") == "https://host/team/app/pull/7"
    [(_, _, query, _, _), opened] = asked
    assert set(query) == {branch, base, "state"}
    body = {"title": "Mend the parser", branch: "agent/mend", base: "main", text: "It read dates twice."}
    assert opened == ("POST", end + place, {}, body, "Bearer secret")


@pytest.mark.parametrize(
    ("kind", "listed"),
    [
        ("GitHub", [{"html_url": "https://host/pull/7", "head": {"ref": "agent/mend"}}]),
        (
            "Gitea",
            [
                {"html_url": "https://host/1", "head": {"ref": "x"}},
                {"html_url": "https://host/pull/7", "head": {"ref": "agent/mend"}},
            ],
        ),
        ("GitLab", [{"web_url": "https://host/pull/7", "source_branch": "agent/mend"}]),
    ],
)
def test_an_open_request_of_the_branch_is_named_and_no_other_is_opened(host, kind, listed):
    name, asked, answers = host
    answers.append((200, listed))
    api = api_of(remote(name), [service(f"http://{name}{KINDS[kind][0]}")], "box")
    assert open_request(api, remote(name), WORK, "main") == "https://host/pull/7"
    assert [method for method, *_ in asked] == ["GET"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((403, {"message": "Resource not accessible"}), "opened no pull request: 403, Resource not accessible"),
        ((422, {"message": "Validation Failed", "errors": [{"message": "No commits"}]}), "422, Validation Failed. No"),
        ((302, b"elsewhere"), "it answered 302"),
        ((201, {"html_url": "javascript:alert(1)"}), "names no address of its pull request"),
        ((201, b"x" * (1 << 20 | 1)), "sent more than 1048576 bytes"),
    ],
)
def test_a_refusal_of_the_host_is_said_and_that_the_branch_is_pushed(host, answer, words):
    name, _, answers = host
    answers += [(200, []), answer]
    api = api_of(remote(name), [service(f"http://{name}/api/v1")], "box")
    with pytest.raises(PullRequestFailed, match=r"^The branch is pushed") as failed:
        open_request(api, remote(name), WORK, "main")
    assert words in str(failed.value)
    assert "secret" not in str(failed.value)


def test_a_host_that_is_not_reached_is_said():
    name = f"127.0.0.1:{free_port()}"
    api = api_of(remote(name), [service(f"http://{name}/api/v1")], "box")
    with pytest.raises(PullRequestFailed, match=r"Gitea is not reached: ConnectError"):
        open_request(api, remote(name), WORK, "main")


def test_github_itself_has_its_api_elsewhere_and_a_host_without_a_service_has_none():
    assert api_of(remote("github.com"), [service("https://api.github.com")], "box").kind == "GitHub"
    with pytest.raises(NoApi, match=r"The spec box has no credential for pull requests at github\.com\. Its operator"):
        api_of(remote("github.com"), [service("https://github.com"), service("https://gitlab.com/api/v4")], "box")


@pytest.mark.parametrize("path", ["../user", "team/../../user", "team/.", "team", "team//app", "team/app?x=1", ""])
def test_a_path_that_names_no_repository_has_no_api(path):
    there = remote("git.example.org")._replace(repository=path)

    with pytest.raises(NoApi, match="names no repository such as owner/name"):
        api_of(there, [service("https://git.example.org/api/v1")], "box")
