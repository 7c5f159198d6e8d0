"""`docker-compose up`, `down` and `up` again, with images that are made here and named as compose.yaml names them."""

import re
from uuid import uuid4

import httpx
import pytest

from tests.engine import alone
from tests.image import NO_KEEPALIVE
from tests.servers import PROJECT, free_port, program, wait_until
from tests.v1 import Api

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

    def run(*words: str) -> str:
        return engine.run("docker-compose", "--project-name", project, *words, env={"PORT": str(port)})

    with alone("compose"):  # the names of the images are the same for all
        engine.run("docker", "tag", image, server)
        engine.build(redis, REDIS.format(image=image))
        run.api = Api(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20, headers=NO_KEEPALIVE))
        yield run
        print(run("logs"))
        run("down", "--volumes")


def up(compose) -> Api:
    compose("up", "--detach", "--no-build")
    wait_until(lambda: compose.api.client.get("/ready").status_code == 200, "the server of compose")
    return compose.api


def test_conversations_survive_compose_down_and_up(compose):
    api = up(compose)
    conversation = api.app_conversation(title="Composed")
    api.send(conversation["id"], "run: echo kept")
    api.until(conversation["id"], "waiting_for_confirmation")
    api.decide(conversation["id"], True)
    api.until(conversation["id"], "finished")
    events = api.events(conversation["id"])

    compose("down")
    api = up(compose)

    assert api.events(conversation["id"]) == events
    assert api.conversation(conversation["id"])["title"] == "Composed"
