"""Every public call of the SDK: what works at the published agent server works here beside other sandboxes."""

from contextlib import ExitStack

import pytest

from settings.specs import BUNDLED
from tests.interop.sides import ours
from tests.servers import wait_until

pytestmark = pytest.mark.interop("runs the published agent server alone and in sandboxes")

#: those that ask for secrets in plain text. Source: docs/compatibility.md, deliberate differences
REFUSED = {"before: get_mcp_config", "beside: get_mcp_config"}

#: sandboxes of another key that run beside
OTHERS = 3

#: commands of each of two clients at once
COMMANDS = 200

#: seconds in which they start on a busy machine
START_SECONDS = 120


@pytest.fixture(scope="module")
def crowded_side(tmp_path_factory, scripted, sdk):
    """This server, in which another key has sandboxes."""
    with ours(tmp_path_factory.mktemp("crowded"), scripted, sdk, more=BUNDLED.read_text()) as side, side.http as http:
        made = http.post("/api/v1/keys", json={"name": "another", "scopes": ["admin"]}).json()
        query, shown = {"sandbox_spec_id": "reference-agent"}, {"X-Session-API-Key": made["key"]}
        for _ in range(OTHERS):
            http.post("/api/v1/sandboxes", params=query, headers=shown).raise_for_status()
        path, running = "/api/v1/sandboxes/search", {"status__eq": "RUNNING"}
        wait_until(
            lambda: len(http.get(path, params=running).json()["items"]) == OTHERS,
            "the sandboxes of another key",
            seconds=START_SECONDS,
        )
        yield side


def outcomes(side) -> dict[str, str | None]:
    """Each call, and what was said where it failed."""
    return {line["step"]: line["error"] for line in side.played("calls", program="calls")}


def test_each_call_that_works_at_the_published_server_works_here_beside_sandboxes_of_another_key(
    their_side, crowded_side
):
    theirs, here = outcomes(their_side), outcomes(crowded_side)

    assert len(theirs) >= 60
    fails_here = {name: said for name, said in here.items() if said and theirs.get(name) is None}
    assert fails_here.keys() - REFUSED == set(), fails_here
    assert theirs.keys() <= here.keys()


def test_of_two_clients_with_two_keys_each_has_its_commands_run_in_a_sandbox_of_its_own(crowded_side):
    names = ("one", "other")
    with crowded_side.http as http:
        made = [http.post("/api/v1/keys", json={"name": name, "scopes": ["admin"]}).json()["key"] for name in names]

    with ExitStack() as stack:
        clients = [
            stack.enter_context(crowded_side.client("asks", name, str(COMMANDS), key=key, program="calls"))
            for name, key in zip(names, made, strict=True)
        ]
        said = [client.until("asked")["said"] for client in clients]

    by_whom = [{line.pop() for line in lines} for lines in said]
    assert said == [[[name, str(number)] for number in range(COMMANDS)] for name in names]
    assert [len(ids) for ids in by_whom] == [1, 1]
    assert by_whom[0] != by_whom[1]
