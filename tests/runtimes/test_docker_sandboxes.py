"""Sandboxes as containers of the whole server: gunicorn, a supervisor, a real Docker engine."""

from uuid import uuid4

import pytest

from tests.engine import ran
from tests.image import answered
from tests.runtimes.test_recalls import SHOWN, STEPS
from tests.servers import WITH_DOCKER, supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.test_faults import supervisor_of
from tests.v1.test_forks import forked, ids, recorded
from tests.v1.test_returns import returned

pytestmark = pytest.mark.docker("starts containers and whole servers")

SPEC = """
[[spec]]
id = "{id}"
created_at = 2026-11-21T00:00:00Z
runtime = "docker"
image = "{image}"
working_dir = "/workspace"
command = ["python", "-m", "reference_agent", "--host", "0.0.0.0", "--port", "{{AGENT_SERVER}}"]
initial_env = {{ PYTHONPATH = "/app" }}
restarts = {restarts}
limits = {{ memory_mb = 300, cpus = 0.75, processes = 99 }}
conversation = {{ confirmation_policy = {{ kind = "AlwaysConfirm" }} }}
"""


@pytest.fixture(scope="module")
def server(engine, image, tmp_path_factory):
    """A server whose sandboxes are containers: its api, its master process, the name of its host."""
    folder, host = tmp_path_factory.mktemp("containers"), f"tests-{uuid4().hex[:8]}"
    specs = [SPEC.format(id=name, image=image, restarts=count) for name, count in (("container", 3), ("fragile", 0))]
    (folder / "specs.toml").write_text("".join(specs))
    settings = {
        "SANDBOX_SPECS": f"{folder}/specs.toml",
        "HOST_ID": host,
        "HOST": "0.0.0.0",
        "AUTH": "open",
        "DOCKER_HOST": engine.url,
    }
    with supervised_server(folder, **WITH_DOCKER, **settings) as (client, master):
        yield WireApi(client), master, host
    # The server ends its sandboxes and keeps their files; each test deletes its own.
    assert containers(engine, host) == volumes(engine, host) == []


@pytest.fixture
def api(server, engine):
    """Calls of that server, whose sandboxes are deleted after the test, until no container is left."""
    api, _, host = server
    yield api
    api.clean()
    wait_until(lambda: containers(engine, host) == volumes(engine, host) == [], "the end of every container and volume")


def containers(engine, host: str):
    return engine.client.containers.list(all=True, filters={"label": f"agent-server.host={host}"})


def volumes(engine, host: str):
    return engine.client.volumes.list(filters={"label": f"agent-server.host={host}"})


def container_of(engine, sandbox_id: str):
    return engine.client.containers.get(f"agent-server-{sandbox_id}")


def test_an_app_conversation_works_in_a_container(api, engine):
    conversation = api.app_conversation(title="In a container")
    api.send(conversation["id"], "run: pwd; id -u; echo kept > note && cat note")
    api.until(conversation["id"], "waiting_for_confirmation")
    api.decide(conversation["id"], True)
    api.until(conversation["id"], "finished")

    [observation] = api.events(conversation["id"], kind__eq="ObservationEvent")
    assert observation["observation"]["content"][0]["text"].split() == ["/workspace", "10001", "kept"]
    sandbox = api.sandbox(conversation["sandbox_id"])
    assert sandbox["status"] == "RUNNING"
    limits = container_of(engine, sandbox["id"]).attrs["HostConfig"]
    assert (limits["Memory"], limits["NanoCpus"], limits["PidsLimit"]) == (300 << 20, 750_000_000, 99)


def test_what_an_agent_changed_in_a_container_is_told_also_while_it_is_paused(api):
    conversation = api.app_conversation()
    api.send(conversation["id"], "run: echo kept > note")
    api.until(conversation["id"], "waiting_for_confirmation")
    api.decide(conversation["id"], True)
    api.until(conversation["id"], "finished")

    api.call("POST", f"/v1/sandboxes/{conversation['sandbox_id']}/pause")
    query = {"path": ".", "since": "start"}

    changes = api.call("GET", f"/v1/app-conversations/{conversation['id']}/git/changes", params=query)
    assert changes == [{"status": "ADDED", "path": "note"}]


def test_a_container_is_paused_and_resumed_and_its_log_can_be_read(api, engine):
    sandbox = api.running_sandbox()
    path = f"/v1/sandboxes/{sandbox['id']}"

    api.call("POST", f"{path}/pause")
    assert api.sandbox(sandbox["id"])["status"] == "PAUSED"
    assert container_of(engine, sandbox["id"]).status == "paused"
    assert "serving on" in api.call("GET", f"{path}/logs")["log"]

    api.call("POST", f"{path}/resume")
    resumed = api.wait_for(sandbox["id"], "RUNNING")
    # All but the first may be measured, or asked for, meanwhile.
    varying = ("status_since", "disk_bytes", "memory_bytes", "cpu_cores", "stray_conversations")
    assert resumed | dict.fromkeys(varying) == sandbox | dict.fromkeys(varying)


def test_a_container_that_is_killed_from_outside_is_started_again_with_its_files(api, engine):
    sandbox = api.running_sandbox()
    killed = container_of(engine, sandbox["id"])
    ran(killed, "echo kept > note")

    killed.kill()

    wait_until(lambda: container_of(engine, sandbox["id"]).id != killed.id, "another container")
    api.wait_for(sandbox["id"], "RUNNING")
    assert ran(container_of(engine, sandbox["id"]), "cat note") == "kept\n"


def test_a_conversation_goes_on_in_the_container_that_replaces_a_killed_one(api, engine):
    conversation = api.app_conversation(title="Goes on")
    sandbox_id = conversation["sandbox_id"]
    assert answered(api, conversation["id"], "echo kept > note && echo written") == "written"
    events = api.events(conversation["id"])
    killed = container_of(engine, sandbox_id)

    killed.kill()

    wait_until(lambda: container_of(engine, sandbox_id).id != killed.id, "another container")
    api.wait_for(sandbox_id, "RUNNING")
    assert answered(api, conversation["id"], "cat note").splitlines()[-1] == "kept"
    assert api.events(conversation["id"])[: len(events)] == events


def test_a_container_that_is_not_restarted_is_an_error_with_the_reason_and_a_resume_finds_its_files(api, engine):
    sandbox = api.running_sandbox("fragile")
    ran(container_of(engine, sandbox["id"]), "echo kept > note")

    container_of(engine, sandbox["id"]).kill()

    detail = api.wait_for(sandbox["id"], "ERROR")["status_detail"]
    assert "exit code 137: ended by SIGKILL" in detail
    assert "serving on" in detail
    assert engine.holders(sandbox["id"]) == []
    api.call("POST", f"/v1/sandboxes/{sandbox['id']}/resume")
    api.wait_for(sandbox["id"], "RUNNING")
    assert ran(container_of(engine, sandbox["id"]), "cat note") == "kept\n"


def test_a_supervisor_adopts_the_containers_of_a_killed_one(server, api, engine):
    _, master, host = server
    running, paused = api.running_sandbox(), api.running_sandbox()
    api.call("POST", f"/v1/sandboxes/{paused['id']}/pause")
    before = {container.id for container in containers(engine, host)}

    supervisor_of(master).kill()

    wait_until(
        lambda: api.client.post(f"/api/v1/sandboxes/{running['id']}/pause").json() == {"success": True}, "a pause"
    )
    api.wait_for(running["id"], "PAUSED")
    api.call("POST", f"/v1/sandboxes/{paused['id']}/resume")
    api.wait_for(paused["id"], "RUNNING")
    assert {container.id for container in containers(engine, host)} == before


@pytest.mark.parametrize("paused", [False, True])
def test_a_deletion_leaves_no_container_and_no_volume(server, api, engine, paused):
    sandbox = api.running_sandbox()
    mounts = container_of(engine, sandbox["id"]).attrs["Mounts"]
    volumes = {mount["Name"] for mount in mounts if mount["Type"] == "volume"}
    if paused:
        api.call("POST", f"/v1/sandboxes/{sandbox['id']}/pause")

    api.call("DELETE", f"/v1/sandboxes/{sandbox['id']}")

    wait_until(lambda: api.sandbox(sandbox["id"]) is None, "the end of the sandbox")
    assert containers(engine, server[2]) == []
    assert volumes
    assert not volumes & {volume.name for volume in engine.client.volumes.list()}


def files_of(engine, conversation) -> str:
    return ran(container_of(engine, conversation["sandbox_id"]), SHOWN)


@pytest.fixture
def changed(api, engine):
    """A conversation in a container, and after each of its turns the last event with a record, and the files."""
    conversation, moments = api.app_conversation(), list[tuple[str, str]]()
    for step in STEPS:
        answered(api, conversation["id"], f"{step}; echo done")
        moments.append((recorded(api, conversation)["event_ids"][-1], files_of(engine, conversation)))
    assert len({files for _, files in moments}) == len(STEPS)
    return conversation, moments


def test_a_fork_runs_in_a_container_of_its_own_with_the_files_of_then(api, engine, changed):
    conversation, moments = changed
    log = ids(api, conversation)

    for event_id, files in moments:
        fork = forked(api, conversation, event_id)

        assert files_of(engine, fork) == files
        assert ids(api, fork)[: log.index(event_id) + 1] == log[: log.index(event_id) + 1]
        assert answered(api, fork["id"], "rm -rf d new && echo mine > mine && cat mine") == "mine"
        api.call("DELETE", f"/v1/app-conversations/{fork['id']}")

    assert (ids(api, conversation), files_of(engine, conversation)) == (log, moments[-1][1])


def test_a_conversation_returns_in_its_container_to_each_moment_and_back(api, engine, changed):
    conversation, moments = changed
    present = moments[-1][1]

    for event_id, files in moments[:2]:
        returned(api, conversation, event_id)
        assert files_of(engine, conversation) == files

        assert returned(api, conversation)
        assert files_of(engine, conversation) == present
    assert answered(api, conversation["id"], "cat d").splitlines()[-1] == "three"
