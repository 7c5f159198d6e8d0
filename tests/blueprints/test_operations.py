"""Health, readiness and information of the server, and paths that it does not serve."""

import multiprocessing
from uuid import uuid4

import pytest
from redis import Redis

from app import create_app
from core.wire import micros, now
from settings.config import Config
from tests.blueprints import away
from tests.servers import store_server


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory):
    """A store of these tests alone: what other tests leave in theirs is in the notice of the server."""
    with store_server(tmp_path_factory.mktemp("store")) as (url, _):
        yield url


@pytest.fixture(scope="module")
def app(redis_url):
    return create_app(Config.of(redis_url=redis_url, redis_timeout=10, web_concurrency=3))


def test_alive_and_health_respond(client):
    for path in ("/alive", "/health"):
        assert client.get(path).get_json() == {"status": "ok"}


def test_ready_reports_the_store(client):
    state = client.get("/ready").get_json()

    assert state["status"] == "ready"
    assert state["store"]["durable"] is True
    assert state["store"]["kind"] in ("valkey", "redis")  # where no wheel is, a redis-server stands in
    assert set(state["store"]) == {"kind", "durable", "durability"}  # nobody needs a key to read this


def test_ready_and_server_info_say_that_the_supervisor_of_this_host_is_missing_until_it_is_there(app, redis_url):
    store, host = app.extensions["server"].store, f"host-{uuid4()}"
    here = {"redis_url": redis_url, "redis_timeout": 10, "host_id": host}
    client, without = (create_app(Config.of(**here, supervisor=number)).test_client() for number in (1, 0))

    def notices() -> list[str | None]:
        ready = client.get("/ready")
        assert ready.status_code == 200
        said = ready.get_json()["notice"]
        assert said is None or said in client.get("/server_info").get_json()["notice"]
        return [said, without.get("/ready").get_json()["notice"]]

    missing, alone = notices()
    assert missing.startswith(f"The supervisor of the host {host} is missing: it has had no heartbeat. Sandboxes of")
    assert alone is None

    assert store.sandboxes.beat(host, "supervisor")
    assert notices() == [None, None]

    with Redis.from_url(redis_url) as redis:
        redis.zincrby("{sandboxes}:hosts", -60_000_000, host)
    assert "is missing: it has had no heartbeat for 6" in notices()[0]


def test_server_info_has_the_members_that_clients_check(client):
    info = client.get("/server_info").get_json()

    assert tuple(int(part) for part in info["version"].split(".")) >= (1, 28, 0)
    assert info["title"] == "Agent Server"
    assert info["uptime"] >= 0
    assert "events" in info["capabilities"]
    assert "notice" in info  # a sentence where a host of other tests does not isolate
    assert info["store"]["durable"] is True


def test_a_capability_that_clients_choose_by_is_served(client):
    capabilities = client.get("/server_info").get_json()["capabilities"]
    wanted = {"conversation_id": str(uuid4())}

    assert {"idempotent_conversation_create_v1", "tool_catalog_v1"} <= set(capabilities)
    created, repeated = (client.post("/api/conversations", json=wanted) for _ in range(2))
    assert (created.status_code, repeated.status_code) == (201, 200)
    assert created.get_json()["id"] == repeated.get_json()["id"] == wanted["conversation_id"]
    assert client.get("/api/tools/catalog").get_json()["tools"]


def test_server_info_says_what_the_store_is_and_may_hold(client):
    found = client.get("/server_info").get_json()["store"]

    assert set(found) == {
        *("kind", "durable", "durability", "version", "used_memory_bytes", "max_memory_bytes", "policy", "fsync"),
    }
    assert tuple(int(part) for part in found["version"].split(".")) >= (7, 0)
    assert found["used_memory_bytes"] > 100_000
    assert found["max_memory_bytes"] >= 0
    assert found["policy"] == "noeviction"
    assert found["fsync"] == "everysec"


def test_server_info_has_the_workers_of_the_settings_and_each_host_that_has_a_supervisor(app):
    store, host = app.extensions["server"].store, f"host-{uuid4()}"
    assert store.sandboxes.beat(host, "supervisor")

    def shown() -> dict:
        info = app.test_client().get("/server_info").get_json()
        assert info["workers"] == 3
        [found] = [one for one in info["hosts"] if one["id"] == host]
        assert abs(micros(found.pop("seen_at")) - now()) < 60_000_000
        return found | {"isolation": [one["kind"] for one in info["isolation"] if one["host"] == host]}

    assert shown() == {"id": host, "sandboxes": 0, "version": None, "isolation": []}

    store.sandboxes.hosts.note(host, {"kind": "none", "network": "host", "reaches": [], "lacks": []}, "1.2.3")
    assert shown() == {"id": host, "sandboxes": 0, "version": "1.2.3", "isolation": ["none"]}


def test_as_many_workers_as_cores_run_unless_the_settings_say_otherwise():
    assert away().test_client().get("/server_info").get_json()["workers"] == multiprocessing.cpu_count()


def test_server_info_has_every_member_of_the_agent_server(client):
    info = client.get("/server_info").get_json()

    # Source: build_server_info of the agent server 1.58
    members = {
        *("uptime", "idle_time", "title", "version", "sdk_version", "tools_version", "workspace_version"),
        *("build_git_sha", "build_git_ref", "python_version", "usable_tools", "runtime_idle_timeout_seconds"),
        *("conversation_runtime", "available_conversation_runtimes", "capabilities", "app_backend_ingress_url"),
        *("max_foreground_terminal_timeout_seconds", "docs", "redoc"),
    }
    assert members <= set(info)
    assert {"terminal", "file_editor", "task_tracker"} <= set(info["usable_tools"])
    assert (info["conversation_runtime"], info["available_conversation_runtimes"]) == ("local", [])


def test_the_idle_time_begins_again_with_a_change_of_a_conversation(client, conversation):
    client.post("/api/conversations", json={"conversation_id": conversation})
    state = client.get(f"/api/conversations/{conversation}").get_json()

    idle_time = client.get("/server_info").get_json()["idle_time"]

    assert 0 <= idle_time <= (now() - micros(state["updated_at"])) / 1e6


@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "text/plain"])
def test_the_root_describes_the_server_to_programs(client, accept):
    root = client.get("/", headers={"Accept": accept} if accept else {})

    varying = {"uptime", "idle_time", "store", "hosts"}  # memory in use, and heartbeats
    info = client.get("/server_info").get_json()
    assert {name: value for name, value in root.get_json().items() if name not in varying} == {
        name: value for name, value in info.items() if name not in varying
    }


def test_the_root_leads_a_browser_to_the_console(client):
    accept = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"

    response = client.get("/", headers={"Accept": accept})

    assert (response.status_code, response.headers["Location"]) == (302, "console/")
    assert "Accept" in response.headers["Vary"]


@pytest.mark.parametrize("path", ["/alive", "/health", "/ready", "/server_info"])
def test_operations_accept_only_reads(client, path):
    assert client.head(path).status_code == 200

    response = client.post(path)

    assert (response.status_code, response.get_json()) == (405, {"detail": "Method Not Allowed"})
    assert set(response.headers["Allow"].split(", ")) == {"GET", "HEAD", "OPTIONS"}


def test_an_unknown_path_is_404_in_json(client):
    paths = ("/nope", "/nope/", "/api/conversation/", "/api/v1/webhooks", "/api/v1//nope")
    responses = {
        (method, path): client.open(path, method=method) for path in paths for method in ("GET", "POST", "DELETE")
    }

    found = {asked: (one.status_code, one.mimetype, one.get_json(silent=True)) for asked, one in responses.items()}
    assert found == dict.fromkeys(found, (404, "application/json", {"detail": "Not Found"}))


@pytest.mark.parametrize(("method", "path"), [("POST", ""), ("GET", "/ID"), ("GET", "/ID//events/count")])
def test_an_extra_slash_never_gets_an_html_page(client, conversation, method, path):
    response = client.open(f"/api//conversations{path.replace('ID', conversation)}", method=method)

    assert response.mimetype == "application/json"
