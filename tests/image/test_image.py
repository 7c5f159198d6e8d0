"""The image, built and run on a real Docker engine."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import httpx
import pytest
from docker.models.containers import Container

from tests.engine import ran
from tests.image import NO_KEEPALIVE, answered, last_output
from tests.servers import wait_until
from tests.test_readme import check_the_sandbox_lines
from tests.v1 import WireApi

pytestmark = pytest.mark.docker("builds the image and starts containers of it")


@dataclass
class ImageServer:
    container: Container
    client: httpx.Client

    @property
    def api(self) -> WireApi:
        return WireApi(self.client)


@contextlib.contextmanager
def served(engine, image: str, **options) -> Iterator[ImageServer]:
    """A container of the image, whose server responds."""
    container = engine.client.containers.run(image, detach=True, ports={"8000/tcp": ("127.0.0.1", None)}, **options)
    try:
        container.reload()
        [binding] = container.ports["8000/tcp"]
        url = f"http://127.0.0.1:{binding['HostPort']}"
        with httpx.Client(base_url=url, timeout=20, headers=NO_KEEPALIVE) as client:
            wait_until(lambda: client.get("/ready").status_code == 200, "the server in the container")
            client.headers["X-Session-API-Key"] = ran(container, "cat /data/key").strip()
            yield ImageServer(container, client)
    finally:
        print(container.logs(tail=200).decode(errors="replace"))
        container.remove(force=True, v=True)


@pytest.fixture(scope="module")
def server(engine, image) -> Iterator[ImageServer]:
    with served(engine, image, healthcheck={"interval": 10**9}) as server:
        yield server


@pytest.fixture
def volume(engine):
    volume = engine.client.volumes.create(f"data-{uuid4().hex[:8]}")
    yield volume.name
    volume.remove()


def test_the_image_adds_at_most_200_mb_to_its_base(engine, image):
    layers = engine.client.images.get(image).history()  # the newest first
    own = next(number for number, layer in enumerate(layers, 1) if "install -d -o agent" in layer["CreatedBy"])

    sizes = {layer["CreatedBy"][:80]: layer["Size"] for layer in layers[:own]}
    assert 0 < sum(sizes.values()) <= 200e6, sizes


def test_every_process_of_the_image_runs_as_its_own_user(server):
    server.api.running_sandbox()

    processes = server.container.top(ps_args="-eo pid,uid,args")["Processes"]

    commands = " ".join(command for *_, command in processes)
    assert all(name in commands for name in ("gunicorn", "redis-server", "supervisor", "reference_agent"))
    assert {uid for _, uid, _ in processes} == {"10001"}
    server.api.clean()


def test_the_images_health_check_turns_healthy(server):
    def status() -> str:
        server.container.reload()
        return server.container.health

    wait_until(lambda: status() == "healthy", "the health check")


def test_the_readmes_sandbox_commands_print_the_documented_output_from_the_image(server):
    check_the_sandbox_lines(str(server.client.base_url), server.client.headers["X-Session-API-Key"])


def test_an_agent_in_the_image_has_a_terminal_and_git_and_its_changes_are_shown(server):
    conversation = server.api.app_conversation()["id"]

    assert answered(server.api, conversation, "tty && git --version").startswith("/dev/pts/")
    answered(server.api, conversation, "git init --quiet . && echo new > file")
    path = f"/v1/app-conversations/{conversation}/git/changes?path=."

    assert [change["path"] for change in server.api.call("GET", path)] == ["file"]
    server.api.clean()


def test_the_first_start_names_the_file_of_the_key_that_it_made_and_the_collected_log_has_no_key(server):
    key = server.client.headers["X-Session-API-Key"]

    log = server.container.logs().decode()

    assert "one was made in /data/key" in log
    assert key not in log
    assert ran(server.container, "stat -c '%a %u' /data /data/key").split() == ["700", "10001", "600", "10001"]


def test_sigterm_ends_the_server_and_its_sandboxes_go_on_in_a_new_container_of_the_same_volume(engine, image, volume):
    options = {"volumes": {volume: {"bind": "/data"}}}
    with served(engine, image, **options) as first:
        # Without approvals: after one the server asks the agent a second later, which would resume the sandbox.
        conversation = first.api.app_conversation(title="Survives")
        policy = {"policy": {"kind": "NeverConfirm"}}
        first.api.call("POST", f"/conversations/{conversation['id']}/confirmation_policy", json=policy)
        first.api.send(conversation["id"], "run: echo kept > file")
        first.api.until(conversation["id"], "finished")
        events = first.api.events(conversation["id"])

        first.container.stop(timeout=60)  # then the engine kills, and the exit code is 137

        assert first.container.wait()["StatusCode"] == 0

    with served(engine, image, **options) as second:
        assert second.api.sandbox(conversation["sandbox_id"])["status"] == "PAUSED"
        assert second.api.events(conversation["id"]) == events
        assert second.api.conversation(conversation["id"])["title"] == "Survives"
        second.api.send(conversation["id"], "run: cat file")
        wait_until(lambda: last_output(second.api, conversation["id"]).endswith("\nkept"), "the kept file")


def test_the_image_runs_with_a_read_only_root_and_without_capabilities(engine, image):
    hardened = {"read_only": True, "tmpfs": {"/tmp": ""}, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]}
    with served(engine, image, **hardened) as server:
        server.api.running_sandbox()
