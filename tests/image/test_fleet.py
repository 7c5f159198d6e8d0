"""The fleet of deploy/fleet: two hosts behind a balancer, on three nodes of Redis. Any one part may die."""

import re
from uuid import uuid4

import httpx
import pytest

from tests.conftest import message
from tests.engine import alone
from tests.image import NO_KEEPALIVE, answered
from tests.image.test_compose import REDIS
from tests.servers import PROJECT, free_port, program, wait_until
from tests.v1 import WireApi

pytestmark = pytest.mark.docker("builds the image and starts containers of it")

FLEET = PROJECT / "deploy" / "fleet" / "compose.yaml"
KEY = "a-key-for-tests-only"

#: stands for HAProxy's own image, which no registry gives here
BALANCER = """FROM {image}
USER root
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends haproxy
ENTRYPOINT []
"""


@pytest.fixture
def fleet(engine, image):
    """Run docker-compose on a fleet of the test alone, which is removed after the test."""
    program("docker-compose")
    server, redis, _, balancer = re.findall(r"^ +image: (\S+)$", FLEET.read_text(), re.M)
    project, port = f"tests{uuid4().hex[:8]}", free_port()
    environment = {"SESSION_API_KEY": KEY, "SECRET_KEY": f"{KEY}-that-seals", "PORT": str(port)}

    def run(*words: str) -> str:
        words = ("docker-compose", "--project-name", project, "--file", str(FLEET), *words)
        return engine.run(*words, env=environment)

    def container(service: str):
        return engine.client.containers.get(run("ps", "--all", "--quiet", service))

    with alone("compose"):  # the names of the images are the same for all
        engine.run("docker", "tag", image, server)
        engine.build(redis, REDIS.format(image=image))
        engine.build(balancer, BALANCER.format(image=image))
        run.container = container
        headers = NO_KEEPALIVE | {"X-Session-API-Key": KEY}
        run.api = WireApi(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, headers=headers))
        yield run
        print(run("logs"))
        run("down", "--volumes")


def is_ready(fleet) -> bool:
    return fleet.api.client.get("/ready").status_code == 200


def append(fleet, conversation_id: str) -> str:
    """Append an event, again until it is acknowledged; its id."""
    event = message("agent", "here")

    def is_acknowledged() -> bool:
        path = f"/api/v1/webhooks/events/{conversation_id}"
        return fleet.api.client.post(path, json=[event]).status_code == 200

    wait_until(is_acknowledged, "an append that is acknowledged")
    return event["id"]


def test_a_sentinel_knows_the_replicas_before_the_primary_tells_of_them(fleet):
    fleet("up", "--detach", "--no-build", "--no-deps", "sentinel1")
    sentinel = fleet.container("sentinel1")

    def known() -> list[str]:
        said = sentinel.exec_run("redis-cli -p 26379 sentinel replicas main").output.decode()
        return sorted(re.findall(r"^name\n(.+)$", said, re.M))

    wait_until(lambda: known() == ["172.31.255.12:6379", "172.31.255.13:6379"], "both replicas")


def test_a_fleet_goes_on_without_one_host_and_without_its_primary(fleet):
    fleet("up", "--detach", "--no-build")
    wait_until(lambda: is_ready(fleet), "the fleet")
    conversation = fleet.api.app_conversation(title="Of a fleet")
    sandbox = fleet.api.sandbox(conversation["sandbox_id"])
    log = fleet.api.call("POST", "/conversations", json={}, status=201)["id"]
    kept = [append(fleet, log)]
    assert answered(fleet.api, conversation["id"], "echo here") == "here"

    fleet.container("redis1").kill()
    kept.append(append(fleet, log))
    fleet("start", "redis1")
    other = "host2" if sandbox["host"] == "host1" else "host1"
    fleet.container(other).kill()
    kept.append(append(fleet, log))
    assert answered(fleet.api, conversation["id"], "echo there") == "there"

    fleet("start", other)
    fleet.container(sandbox["host"]).kill()
    kept.append(append(fleet, log))
    ids = [event["id"] for event in fleet.api.events(log)]
    assert [ids.count(one) for one in kept] == [1] * len(kept)
