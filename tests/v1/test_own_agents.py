"""POST /api/conversations with an agent: it starts in a sandbox, and the response waits for it."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import httpx
import psutil
import pytest
from redis import Redis

from tests.servers import supervised_server, wait_until
from tests.v1 import WireApi, found_in
from tests.v1.processes import in_sandboxes

pytestmark = pytest.mark.process("starts a sandbox for each test, in three servers")

PROGRAM = Path(__file__).parent / "brought_agent.py"
KEY, SECRET = "planted-key-of-a-model-0123456789", "planted-secret-0123456789"
AGENT = {"kind": "Agent", "llm": {"model": "their/model", "api_key": KEY}, "tools": [{"name": "terminal"}]}
WORKSPACE = {"kind": "LocalWorkspace", "working_dir": "/home/somebody/project"}

SPECS = f"""
[[spec]]
id = "never"
command = ["/no/such/program"]
created_at = 2026-11-21T00:00:00Z

[[spec]]
id = "brought"
own_agents = true
restarts = 0
command = ["{{PYTHON}}", "{PROGRAM}", "{{AGENT_SERVER}}"]
readable = ["{PROGRAM}"]
created_at = 2026-11-21T00:00:00Z
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("own")


@pytest.fixture(scope="module")
def whole(place):
    """A server whose agents do as a body says, and its master process."""
    (place / "specs.toml").write_text(SPECS)
    settings = {"SANDBOX_SPECS": str(place / "specs.toml"), "LOG_LEVEL": "debug", "WEB_CONCURRENCY": "2"}
    with supervised_server(place, **settings) as (client, master):
        yield WireApi(client), master


@pytest.fixture
def api(whole):
    yield whole[0]
    whole[0].clean()


def kind(name: str) -> dict:
    return {**AGENT, "kind": name}


def post(api, headers: dict[str, str] | None = None, **members) -> httpx.Response:
    body = {"agent": AGENT, "workspace": WORKSPACE, **members}
    return api.client.post("/api/conversations", json=body, headers=headers or {})


def sandboxes(api) -> list[dict]:
    return api.call("GET", "/v1/sandboxes/search")["items"]


def work(place, api) -> Path:
    """The working folder of the one sandbox."""
    [sandbox] = sandboxes(api)
    [folder] = (place / "sandboxes").glob(f"*/{sandbox['id']}/work")
    return folder


def requests(place, api, path: str = "/api/conversations") -> list[dict]:
    """What the agent server in the one sandbox was asked."""
    kept = [json.loads(line) for line in (work(place, api) / "requests.jsonl").read_text().splitlines()]
    return [one for one in kept if one["path"] == path]


def until_nothing_is_left(api, place, conversation: str) -> None:
    wait_until(lambda: not sandboxes(api), "the end of the sandbox")
    wait_until(lambda: not in_sandboxes(place), "the end of its processes")
    assert api.client.get(f"/api/conversations/{conversation}").status_code == 404
    redis = Redis(unix_socket_path=str(place / "redis.sock"))
    left = [*redis.scan_iter(f"conv:{{{conversation}}}*"), *redis.scan_iter("{starts}:body:*")]
    assert [key for key in left if redis.ttl(key) == -1] == [], "what does not end by itself"


# failures first


def test_the_agents_refusal_is_passed_on_without_what_it_refused_and_leaves_nothing(api, place, conversation):
    refused = post(api, conversation_id=conversation, agent=kind("Refused"))

    assert refused.status_code == 422
    missing, odd = refused.json()["detail"]
    assert missing == {"type": "missing", "loc": ["body", "agent", "tools"], "msg": "Field required"}
    assert (odd["loc"], odd["msg"]) == (["body"], "Value error, ********** is odd")
    until_nothing_is_left(api, place, conversation)


def test_an_agent_server_that_fails_is_502_with_its_reason_and_a_repeat_starts_again(api, place, conversation):
    failed = post(api, conversation_id=conversation, agent=kind("Broken"))

    assert failed.status_code == 502
    assert "500: It broke with **********" in failed.json()["detail"]
    assert post(api, conversation_id=conversation).status_code == 201
    wait_until(lambda: len(sandboxes(api)) == 1, "the end of the sandbox that failed")
    assert api.call("GET", f"/conversations/{conversation}")["agent"]["kind"] == "Agent"


def test_a_parent_that_does_not_exist_is_422_and_named(api, place, conversation):
    refused = post(api, conversation_id=conversation, parent_conversation_id=str(uuid4()))

    assert refused.status_code == 422
    assert refused.json()["detail"][0]["loc"] == ["body", "parent_conversation_id"]
    until_nothing_is_left(api, place, conversation)


def test_a_worker_that_is_killed_leaves_the_start_to_its_driver_and_a_repeat_finds_it(whole, api, place, conversation):
    _, master = whole
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, api, conversation_id=conversation, agent=kind("Slow"))
        wait_until(lambda: len(requests(place, api)) == 1, "the request at the agent server")
        folder = work(place, api)
        for child in psutil.Process(master.pid).children():
            with suppress(psutil.Error):
                if "gunicorn" in " ".join(child.cmdline()):
                    child.kill()
        with pytest.raises(httpx.TransportError):
            first.result()
    (folder / "go").touch()
    wait_until(lambda: api.client.get("/alive").status_code == 200, "a worker")

    wait_until(lambda: post(api, conversation_id=conversation).status_code == 200, "the repeat")

    assert len(sandboxes(api)) == len(requests(place, api)) == 1


def test_a_client_that_hangs_up_leaves_the_start_to_its_driver_and_a_repeat_finds_it(api, place, conversation):
    body = {"conversation_id": conversation, "agent": kind("Slow"), "workspace": WORKSPACE}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{api.client.base_url}/api/conversations", json=body, timeout=httpx.Timeout(20, read=0.5))
    wait_until(lambda: len(requests(place, api)) == 1, "the request at the agent server")
    (work(place, api) / "go").touch()

    assert post(api, conversation_id=conversation).status_code == 200
    assert len(sandboxes(api)) == len(requests(place, api)) == 1


def test_a_sandbox_that_fails_is_502_with_its_reason(tmp_path, conversation):
    (tmp_path / "specs.toml").write_text(SPECS.replace("own_agents = true\n", ""))
    with supervised_server(tmp_path, SANDBOX_SPECS=str(tmp_path / "specs.toml")) as (client, _):
        failed = post(WireApi(client), conversation_id=conversation)

        assert failed.status_code == 502
        assert "/no/such/program" in failed.json()["detail"]
        until_nothing_is_left(WireApi(client), tmp_path, conversation)


def test_at_the_cap_a_start_is_429_until_a_sandbox_has_been_idle_and_gives_way(tmp_path, conversation):
    (tmp_path / "specs.toml").write_text(SPECS)
    settings = {"SANDBOX_SPECS": str(tmp_path / "specs.toml"), "MAX_SANDBOXES": "1", "SANDBOX_OVERFLOW": "refuse"}
    with supervised_server(tmp_path, **settings) as (client, _):
        api = WireApi(client)
        first = post(api).json()
        [sandbox] = sandboxes(api)

        refused = post(api, conversation_id=conversation)
        assert (refused.status_code, "1 of 1 sandboxes are running" in refused.json()["detail"]) == (429, True)
        assert api.client.get(f"/api/conversations/{conversation}").status_code == 404

        Redis(unix_socket_path=str(tmp_path / "redis.sock")).hset(f"{{sandboxes}}:box:{sandbox['id']}", "active_at", 1)
        second = post(api, conversation_id=conversation)
        assert second.status_code == 201, second.text
        api.wait_for(sandbox["id"], "PAUSED")
        assert api.call("GET", f"/conversations/{first['id']}")["id"] == first["id"]
        api.clean()


# what the agent server gets


def test_a_body_reaches_the_agent_server_as_it_came_with_a_folder_of_the_sandbox(api, place, conversation):
    given = {
        "agent": AGENT,
        "agent_definitions": [{"name": "helper"}],
        "autotitle": False,
        "plugins": [{"source": "github:a/b"}],
        "observability_tags": ["x"],
        "secrets": {"TOKEN": {"kind": "StaticSecret", "value": SECRET}},
        "no such member": {"deep": [1, 2.5, None]},
    }
    headers = {"X-OpenHands-Observability-Tags": '["t"]', "X-OpenHands-Observability-Else": "no"}

    created = post(api, headers, conversation_id=conversation, **given)

    [request] = requests(place, api)
    folder = str(work(place, api))
    assert request["body"] == {
        **given,
        "conversation_id": conversation,
        "workspace": {**WORKSPACE, "working_dir": folder},
    }
    told = {name: value for name, value in request["headers"].items() if name.lower().startswith("x-openhands")}
    assert told == {"X-OpenHands-Observability-Tags": '["t"]'}
    assert created.status_code == 201
    assert created.json()["workspace"]["working_dir"] == folder


def test_the_conversation_has_the_members_of_the_body_and_shows_no_secret(api, conversation):
    members = {
        "title": "Mine",
        "tags": {"a": "b"},
        "confirmation_policy": {"kind": "AlwaysConfirm"},
        "security_analyzer": {"kind": "LLMSecurityAnalyzer"},
        "max_iterations": 7,
        "tool_module_qualnames": {"terminal": "their.module"},
    }

    created = post(api, conversation_id=conversation, secrets={"TOKEN": SECRET}, **members).json()

    assert {name: created[name] for name in members} == members
    assert created["agent"]["llm"] == {"model": "their/model", "api_key": "**********"}
    assert list(created["secret_registry"]["secret_sources"]) == ["TOKEN"]
    assert api.conversation(conversation)["llm_model"] == "their/model"
    assert api.conversation(conversation)["sandbox_status"] == "RUNNING"


def test_an_agent_server_that_has_forgotten_the_conversation_gets_the_body_again_and_what_was_set_since(
    api, place, conversation
):
    text = {"role": "user", "content": [{"type": "text", "text": "first"}]}
    post(api, conversation_id=conversation, initial_message=text, autotitle=False, secrets={"TOKEN": SECRET})
    api.call("POST", f"/conversations/{conversation}/confirmation_policy", json={"policy": {"kind": "AlwaysConfirm"}})
    (work(place, api) / "forget").touch()

    api.call("POST", f"/conversations/{conversation}/run")

    first, second = (one["body"] for one in requests(place, api))
    once = first.pop("initial_message")
    assert once == text
    assert second == {
        **first,
        "secrets": {"TOKEN": SECRET},
        "confirmation_policy": {"kind": "AlwaysConfirm"},
    }


# once per id


def test_of_many_clients_that_start_one_id_one_gets_201_and_all_the_same_conversation(api, place, conversation):
    with ThreadPoolExecutor(12) as pool:
        responses = list(pool.map(lambda _: post(api, conversation_id=conversation), range(12)))

    assert sorted(one.status_code for one in responses) == [200] * 11 + [201]
    assert {one.json()["id"] for one in responses} == {conversation}
    assert len(sandboxes(api)) == len(requests(place, api)) == 1


def test_a_known_id_is_200_with_its_conversation_whatever_the_body(api, conversation):
    post(api, conversation_id=conversation)

    again = post(api, conversation_id=conversation, agent=kind("Broken"), title="Other")

    assert (again.status_code, again.json()["title"]) == (200, None)
    assert len(sandboxes(api)) == 1


def test_the_id_of_a_detached_conversation_is_200_and_starts_nothing(api, conversation):
    assert post(api, conversation_id=conversation, agent=None).status_code == 201

    assert post(api, conversation_id=conversation).status_code == 200
    assert sandboxes(api) == []


def test_a_repeat_with_an_idempotency_key_starts_nothing_new(api, place):
    headers = {"Idempotency-Key": str(uuid4())}
    first, again = post(api, headers), post(api, headers)

    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["Idempotency-Replayed"] == "true"
    assert len(sandboxes(api)) == len(requests(place, api)) == 1


# the key of the model


def test_no_key_of_a_model_is_found_where_none_may_be(api, place, conversation):
    post(api, conversation_id=conversation, agent=kind("Refused"))
    post(api, conversation_id=conversation, agent_settings={"llm": {"api_key": KEY}}, secrets={"TOKEN": SECRET})
    shown = [
        json.dumps(api.call("GET", f"/conversations/{conversation}")),
        json.dumps(api.call("GET", "/v1/app-conversations/start-tasks/search")),
        json.dumps(api.conversation(conversation)),
    ]

    assert [text for text in shown if KEY in text or SECRET in text] == []
    Redis(unix_socket_path=str(place / "redis.sock")).save()
    assert found_in(place, [KEY, SECRET], but="work") == []
