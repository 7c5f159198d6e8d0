"""A key works in the sandboxes that it started: pause, resume, logs, archive, and files at a start.

Source: docs/access.md, "Joining a sandbox".
"""

from contextlib import ExitStack

import pytest

from blueprints import sandboxes
from tests.agents import running_sandbox
from tests.agents.test_joins import JoinsWorld, keyed  # noqa: F401 a fixture
from tests.shared import ADMIN

SCOPES = [("read",), ("write",), ("approve",), ("write", "approve"), ("admin",)]

#: method and path of an operation → the scopes that it needs in a sandbox of one's own
IN_OWN = {
    ("POST", "/api/v1/sandboxes/{}/pause"): {"write"},
    ("POST", "/api/v1/sandboxes/{}/resume"): {"write"},
    ("GET", "/api/v1/sandboxes/{}/logs"): {"write", "approve"},
    ("HEAD", "/api/v1/sandboxes/{}/archive"): {"write", "approve"},
    ("POST", "/api/v1/sandboxes?from={}"): {"write", "approve"},
    ("DELETE", "/api/v1/sandboxes/{}"): {"admin"},
}


class Packed:
    """The files of a sandbox that nobody reads."""

    def close(self, *_):
        pass


@pytest.fixture
def world(keyed, monkeypatch):  # noqa: F811
    """No supervisor pauses, deletes, packs or reads anything here."""
    store = keyed.extensions["server"].store
    monkeypatch.setattr(sandboxes, "DONE_TIMEOUT", 0)
    monkeypatch.setattr(store.sandboxes, "log", lambda _id, **_: "")
    monkeypatch.setattr(store.sandboxes.archives, "of_sandbox", lambda _id: Packed())
    with ExitStack() as running:
        yield JoinsWorld(keyed, running)


@pytest.mark.parametrize(("method", "path"), IN_OWN)
@pytest.mark.parametrize("whose", ["own", "another's", "nobody's"])
@pytest.mark.parametrize("scopes", SCOPES, ids=" ".join)
def test_a_key_works_in_the_sandboxes_that_it_started_alone(world, scopes, whose, method, path):
    made, headers = world.key(*scopes)
    owner = {"own": made, "another's": world.key("write", "approve")[0]}.get(whose)
    sandbox = world.running.enter_context(
        running_sandbox(world.store, world.agent.url, owner=owner.id if owner else "")
    )

    response = world.http.open(path.format(sandbox.id), method=method, headers=headers)

    may = "admin" in scopes or (whose == "own" and IN_OWN[method, path] <= {*scopes})
    assert response.status_code == (200 if may else 403), response.json
    if path.endswith("from={}") and may:
        world.running.callback(world.store.sandboxes.report, response.json["id"], "scripted", "supervisor", "GONE")


@pytest.mark.parametrize("scopes", SCOPES, ids=" ".join)
def test_an_archive_is_brought_by_a_key_that_may_run_any_command(world, scopes):
    _, headers = world.key(*scopes)

    response = world.http.post("/api/v1/sandboxes?from=archive", headers=headers, content_type="text/plain", data="x")

    may = "admin" in scopes or {"write", "approve"} <= {*scopes}
    assert response.status_code == (415 if may else 403), response.json  # the media type is looked at after the key


def test_a_refusal_names_what_is_missing_and_the_next_step(world):
    mine, headers = world.key("write")
    _, others = world.key("write", "approve")
    sandbox_id, _ = world.sandbox(mine)

    lacks = world.http.get(f"/api/v1/sandboxes/{sandbox_id}/archive", headers=headers).json["detail"]
    foreign = world.http.post(f"/api/v1/sandboxes/{sandbox_id}/pause", headers=others).json["detail"]

    assert lacks.startswith("archive: this needs a key with the scopes write and approve, and this one lacks approve")
    assert "agentctl keys new NAME --scope write --scope approve" in lacks
    assert foreign.startswith(f"pause: this key did not start the sandbox {sandbox_id}. Use the key that did")
    assert foreign.endswith("or one with the scope admin.")


def test_an_unknown_sandbox_is_404_for_a_key_that_is_no_admins(world):
    _, headers = world.key("write", "approve")

    for method, path in IN_OWN:
        if method != "DELETE":
            assert world.http.open(path.format("unknown"), method=method, headers=headers).status_code == 404


def test_a_key_with_write_starts_a_sandbox_without_files_that_is_its_own(world):
    made, headers = world.key("write")

    response = world.http.post("/api/v1/sandboxes", headers=headers)

    assert response.status_code == 200
    sandbox_id = response.json["id"]
    assert world.store.sandboxes.get(sandbox_id).owner == made.id
    world.http.delete(f"/api/v1/sandboxes/{sandbox_id}", headers={"Authorization": f"Bearer {ADMIN}"})
