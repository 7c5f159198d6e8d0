"""Warm sandboxes of a whole server: real processes, from the first start to the end of the server."""

import pytest

from runtimes.tree import MARK
from tests.servers import store_server, supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.conftest import AGENT
from tests.v1.processes import agents, in_sandboxes, kill_all

pytestmark = pytest.mark.process("starts two servers that keep sandboxes ready")

SPEC = f"""
[[spec]]
id = "warm"
warm = 1
{AGENT}
"""


def warm(api):
    """The warm sandboxes that run."""
    found = api.call("GET", "/v1/sandboxes/search", params={"status__eq": "RUNNING"})["items"]
    return [one for one in found if "is warm" in (one["status_detail"] or "")]


def warm_one(api, *, but=()):
    """The warm sandbox that runs, once it is another one than those."""
    wait_until(lambda: [one for one in warm(api) if one["id"] not in but], "a warm sandbox")
    return warm(api)[0]


@pytest.fixture
def redis(tmp_path):
    with store_server(tmp_path) as (url, _):
        yield url


def test_warm_sandboxes_are_taken_refilled_replaced_drained_and_ended(tmp_path, redis):
    specs = tmp_path / "specs.toml"
    settings = {"REDIS_URL": redis, "SANDBOX_SPECS": str(specs), "HOST_ID": "h"}
    specs.write_text(SPEC)
    with supervised_server(tmp_path, **settings, STOP_SANDBOXES="0") as (client, _):
        api = WireApi(client)

        # a conversation gets the one that runs, and another one is started behind it
        first = warm_one(api)
        assert first["session_api_key"] is None
        conversation = api.app_conversation(initial_message={"content": [{"type": "text", "text": "run: echo hello"}]})
        assert conversation["sandbox_id"] == first["id"]
        wait_until(lambda: api.count(conversation["id"], kind="ObservationEvent") == 1, "the observation")
        bound = api.sandbox(first["id"])
        assert bound["session_api_key"]
        assert bound["status_detail"] is None
        second = warm_one(api, but=[first["id"]])

        # one whose processes are killed is replaced, and leaves no files
        kill_all([one for one in agents(tmp_path) if one.environ()[MARK].endswith(f"/{second['id']}")])
        third = warm_one(api, but=[first["id"], second["id"]])
        assert api.sandbox(second["id"]) is None
        assert not list((tmp_path / "sandboxes" / "h").glob(f"{second['id']}*"))

    # a server with a changed spec ends it, and not the one that is bound
    specs.write_text(SPEC.replace("restarts = 0", "restarts = 1"))
    with supervised_server(tmp_path, **settings) as (client, _):
        api = WireApi(client)
        fourth = warm_one(api, but=[third["id"]])
        wait_until(lambda: api.sandbox(third["id"]) is None, "the end of the old one")
        assert api.sandbox(first["id"])["status"] == "RUNNING"

    # a server that ends leaves no process, and keeps the files of the one that is bound alone
    assert not in_sandboxes(tmp_path)
    folders = {path.name for path in (tmp_path / "sandboxes" / "h").iterdir() if path.is_dir()}
    assert first["id"] in folders
    assert fourth["id"] not in folders
