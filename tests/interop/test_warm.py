"""The published agent server as a warm sandbox: a conversation takes it, and works a turn in it."""

from uuid import UUID

import pytest

from tests.interop.sides import ours
from tests.interop.test_survival import START_SECONDS
from tests.servers import wait_until
from tests.v1 import WireApi

pytestmark = pytest.mark.interop("runs the published agent server in warm sandboxes")


@pytest.fixture(scope="module")
def warm_api(tmp_path_factory, scripted):
    """This server with one warm sandbox of the published agent server."""
    with ours(tmp_path_factory.mktemp("warm"), scripted, None, spec="warm = 1") as side, side.http as http:
        yield WireApi(http)


def warm_ones(api: WireApi) -> list[str]:
    """Ids of the warm sandboxes that run."""
    items = api.client.get("/api/v1/sandboxes/search").json()["items"]
    return [one["id"] for one in items if one["status"] == "RUNNING" and "warm" in (one["status_detail"] or "")]


def test_a_conversation_takes_the_warm_sandbox_and_works_a_turn_in_it(warm_api):
    # Given a warm sandbox of the published agent server
    wait_until(lambda: warm_ones(warm_api), "a warm sandbox", seconds=START_SECONDS)
    [warm] = warm_ones(warm_api)

    # When a conversation is started with a first message
    first = {"content": [{"type": "text", "text": "run: echo warm"}]}
    task = warm_api.start_task(title="Warm", initial_message=first)
    wait_until(lambda: warm_api.task(task["id"])["status"] in ("READY", "ERROR"), "the start", seconds=START_SECONDS)
    task = warm_api.task(task["id"])

    # Then it is in that sandbox, and its agent proposes, receives the decision and finishes
    assert (task["status"], task["detail"], task["sandbox_id"]) == ("READY", None, warm)
    identity = str(UUID(task["app_conversation_id"]))
    warm_api.until(identity, "waiting_for_confirmation")
    assert warm_api.decide(identity, True) == {"success": True}
    wait_until(lambda: warm_api.count(identity, kind="ObservationEvent") >= 1, "the command", seconds=START_SECONDS)
    [observed] = warm_api.events(identity, kind__eq="ObservationEvent")[:1]
    assert "warm" in str(observed["observation"])
