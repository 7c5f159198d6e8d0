"""The work of a conversation leaves a named way out: a branch by Git, with a credential that is put in outside."""

import json
import subprocess
from http.server import ThreadingHTTPServer
from typing import ClassVar
from uuid import UUID

import pytest

from runtimes.isolation.abilities import abilities
from settings.specs import BUNDLED
from tests.git_server import Git, repository
from tests.quick import serve
from tests.runtimes.host import lacking
from tests.servers import supervised_server, wait_until

pytestmark = pytest.mark.process("starts a server, sandboxes and git")

#: what must stay outside
GIT_TOKEN, API_TOKEN = "eC1hY2Nlc3MtdG9rZW46c2VjcmV0", "a-token-of-the-api"

SERVICES = """
[[spec.service]]
name = "git"
base_url = "{url}/team"
headers = {{ Authorization = "Basic {{env:GIT_TOKEN}}" }}

[[spec.service]]
name = "pulls"
base_url = "{url}/api/v1"
headers = {{ Authorization = "Bearer {{env:API_TOKEN}}" }}
"""


class PushHost(Git):
    """A host of repositories: Git's own server below /team, and the API for pull requests of Gitea."""

    opened: ClassVar[list]

    def do_GET(self) -> None:
        if self.path.startswith("/api/v1/"):
            return self._answer(200, [])
        return super().do_GET()

    def do_POST(self) -> None:
        if not self.path.startswith("/api/v1/"):
            return super().do_POST()
        self.opened.append((self.path, self.headers["Authorization"], json.loads(self.body())))
        return self._answer(201, {"html_url": f"http://{self.headers['Host']}/team/app/pulls/1"})

    def _answer(self, status: int, content: object) -> None:
        raw = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """The address of the host, the repository `team/app` that it has, and the pull requests that were opened."""
    folder = tmp_path_factory.mktemp("host")
    bare = repository(folder, "team/app", a__txt="one\n")
    kind = type("Ours", (PushHost,), {"folder": folder, "credential": f"Basic {GIT_TOKEN}", "opened": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    serve(server)
    yield f"http://127.0.0.1:{server.server_port}", bare, kind.opened
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def client(tmp_path_factory, host):
    if why := abilities().bubblewrap:
        lacking(why)
    folder = tmp_path_factory.mktemp("pushes")
    renamed = {"COUNT": "1", "KEY_0": "url.{EGRESS}/git/.insteadOf", "VALUE_0": "https://git.example.org/team/"}
    variables = "".join(f', GIT_CONFIG_{name} = "{value}"' for name, value in renamed.items())
    text = BUNDLED.read_text().replace('LANG = "C.UTF-8" }', f'LANG = "C.UTF-8"{variables} }}')
    (folder / "specs.toml").write_text(text + SERVICES.format(url=host[0]))
    settings = {"SANDBOX_SPECS": str(folder / "specs.toml"), "GIT_TOKEN": GIT_TOKEN, "API_TOKEN": API_TOKEN}
    with supervised_server(folder, **settings) as (client, _):
        yield client


def worked(client, text: str, **members: object) -> str:
    """The id of a conversation whose agent has run the lines of a text."""
    sent = {"content": [{"type": "text", "text": text}], "run": True}
    body = {"initial_message": sent, **members}
    task = client.post("/api/v1/app-conversations", json=body).raise_for_status().json()

    def started() -> str | None:
        [found] = client.get("/api/v1/app-conversations/start-tasks", params={"ids": task["id"]}).json()
        assert found["status"] != "ERROR", found
        return found["app_conversation_id"] if found["status"] == "READY" else None

    wait_until(started, "the start")
    path = f"/api/conversations/{UUID(started())}"

    def is_done() -> bool:
        client.post(f"{path}/events/respond_to_confirmation", json={"accept": True})
        return client.get(path).json()["execution_status"] == "finished"

    wait_until(is_done, "the end of the work")
    return path.rpartition("/")[2]


def test_work_leaves_as_a_branch_and_a_pull_request_and_no_credential_is_inside(client, host):
    url, bare, opened = host
    work = worked(
        client,
        "run: echo two > app/a.txt\nrun: (env; git -C app config --list) > seen",
        selected_repository="https://git.example.org/team/app.git",
        title="Mend the parser",
    )
    at = f"/api/v1/app-conversations/{work}/git"
    remote = client.get(f"{at}/remote").raise_for_status().json()
    assert remote == {
        **{"path": "app", "url": f"{url}/team/app.git", "branch": "main", "base": "main", "lacks": None},
        **{"proposed_branch": "agent/mend-the-parser", "proposed_title": "Mend the parser"},
    }

    body = {"branch": "agent/mend-the-parser", "title": "Mend the parser", "description": "For ada.", **remote}
    body = {name: body[name] for name in ("branch", "title", "description", "path", "url")}
    elsewhere = client.post(
        f"{at}/push", json={**body, "branch": "agent/mend", "url": "https://elsewhere.example.org/x"}
    )
    assert (elsewhere.status_code, elsewhere.json()["detail"][:35]) == (
        409,
        "The repository's remote has changed",
    )
    assert client.post(f"{at}/push", json={**body, "branch": "main"}).json()["detail"] == (
        "main is the remote's default branch: choose another branch"
    )
    body["branch"] = "agent/mend-the-parser"
    pushed = client.post(f"{at}/push", json={**body, "pull_request": True}).raise_for_status().json()

    tip = subprocess.run(["git", "rev-parse", "agent/mend-the-parser"], cwd=bare, capture_output=True, text=True)
    assert pushed == {
        **{"branch": "agent/mend-the-parser", "commit": tip.stdout.strip(), "url": f"{url}/team/app.git"},
        **{"pull_request": f"{url}/team/app/pulls/1", "offered_url": None},
    }
    shown = subprocess.run(["git", "show", "agent/mend-the-parser:a.txt"], cwd=bare, capture_output=True, text=True)
    assert shown.stdout == "two\n"
    asked = {"title": "Mend the parser", "head": "agent/mend-the-parser", "base": "main", "body": "For ada."}
    assert opened == [("/api/v1/repos/team/app/pulls", f"Bearer {API_TOKEN}", asked)]

    events = client.get(f"/api/conversations/{work}/events/search", params={"limit": 100}).json()["items"]
    assert [event["value"] for event in events if event.get("key") == "pushed"] == [pushed]
    entries = client.get(f"/api/v1/conversation/{work}/audit").json()["items"]
    [entry] = [entry for entry in entries if entry["decision"] == "push_begun"]
    assert entry["actor"]["kind"] == "key"
    for words in (tip.stdout.strip(), "agent/mend-the-parser", f"{url}/team/app.git"):
        assert words in entry["reason"]
    seen = client.get(f"/api/v1/app-conversations/{work}/file", params={"file_path": "seen"}).json()
    assert "GIT_CONFIG_COUNT" in seen
    assert GIT_TOKEN not in seen
    assert API_TOKEN not in seen


def test_a_folder_without_a_repository_says_so(client):
    work = worked(client, "run: echo one > a.txt")
    refused = client.get(f"/api/v1/app-conversations/{work}/git/remote")
    assert refused.status_code == 409
    assert refused.json()["detail"].startswith(
        "The conversation's folder is not a Git repository, so there is no remote"
    )
