"""`docker-compose` starts, restarts and upgrades the server, with images made here and named as compose.yaml does."""

import re
from uuid import uuid4

import httpx
import pytest
from docker.models.containers import Container

from tests.chance import variants
from tests.engine import alone, ran
from tests.image import NO_KEEPALIVE, answered
from tests.servers import PROJECT, free_port, program, wait_until
from tests.v1 import WireApi

pytestmark = pytest.mark.docker("builds the image and starts containers of it")

#: Redis' own image, which no registry gives here: the server's image has a redis-server as well
REDIS = """FROM {image}
WORKDIR /data
ENTRYPOINT ["sh", "-c", "exec \\"$@\\" --protected-mode no", "--"]
"""


@pytest.fixture
def compose(engine, image):
    """Run docker-compose on a project of the test alone, which is removed after the test."""
    program("docker-compose")
    server, redis = re.findall(r"^ +image: (\S+)$", (PROJECT / "compose.yaml").read_text(), re.M)
    project, port = f"tests{uuid4().hex[:8]}", free_port()

    def run(*words: str, **environment: str) -> str:
        environment = {"SESSION_API_KEY": "", **environment, "PORT": str(port)}
        return engine.run("docker-compose", "--project-name", project, *words, env=environment)

    def container() -> Container:
        return engine.client.containers.get(run("ps", "--quiet", "server"))

    with alone("compose"):  # the names of the images are the same for all
        engine.run("docker", "tag", image, server)
        engine.build(redis, REDIS.format(image=image))
        run.server, run.container = server, container
        run.api = WireApi(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20, headers=NO_KEEPALIVE))
        yield run
        print(run("logs"))
        run("down", "--volumes")


def up(compose) -> WireApi:
    compose("up", "--detach", "--no-build")
    wait_until(lambda: compose.api.client.get("/ready").status_code == 200, "the server of compose")
    compose.api.client.headers["X-Session-API-Key"] = ran(compose.container(), "cat /data/key").strip()
    return compose.api


def test_a_key_that_is_set_is_handed_to_the_server_which_makes_none(compose):
    compose("up", "--detach", "--no-build", SESSION_API_KEY="a-key-for-tests-only")
    wait_until(lambda: compose.api.client.get("/ready").status_code == 200, "the server of compose")

    assert "#key=" not in compose("logs")
    assert "key" not in ran(compose.container(), "ls /data").split()


def restart(compose, _engine, _image) -> None:
    compose("restart", "server")


def upgrade(compose, engine, image) -> None:
    """A new container of a newer image on the same volume."""
    before = compose.container().id
    engine.build(compose.server, f"FROM {image}\nLABEL release=newer\n")
    compose("up", "--detach", "--no-build")
    assert compose.container().id != before


def down_and_up(compose, _engine, _image) -> None:
    compose("down")
    compose("up", "--detach", "--no-build")


def kill(compose, _engine, _image) -> None:
    compose("kill")
    compose("up", "--detach", "--no-build")


@pytest.mark.parametrize("change", variants([upgrade, kill], [restart, down_and_up]))
def test_conversations_and_files_survive_and_go_on_when_they_are_used(compose, engine, image, change):
    api = up(compose)
    conversation = api.app_conversation(title="Composed")
    answered(api, conversation["id"], "echo kept > file")
    events = api.events(conversation["id"])
    sandbox_id = conversation["sandbox_id"]
    assert sandbox_id in ran(compose.container(), "ls /data/sandboxes/server").split()

    change(compose, engine, image)

    wait_until(lambda: compose.api.client.get("/ready").status_code == 200, "the server after the change")
    assert api.events(conversation["id"])[: len(events)] == events
    assert api.conversation(conversation["id"])["title"] == "Composed"
    if change is not kill:  # then nothing could tell it to stop: its supervisor starts it again as after a crash
        assert api.sandbox(sandbox_id)["status"] == "PAUSED"
        assert "its files are kept" in api.sandbox(sandbox_id)["status_detail"]
    assert answered(api, conversation["id"], "cat file").splitlines()[-1] == "kept"
    assert ran(compose.container(), f"cat /data/sandboxes/server/{sandbox_id}/work/file") == "kept\n"
